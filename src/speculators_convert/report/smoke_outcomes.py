"""What a smoke run's outputs were on its HTML page: drafted against plain output, and each prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speculators_convert.report.html import NOTHING, Column, Markup, element, join, table
from speculators_convert.report.smoke_modes import alike
from speculators_convert.results.smoke import Equivalence, ModeResult, PromptOutcome, Sampled, SmokeResult, Split, run_name

_OPEN = 32
"""Prompts up to which a table is shown unfolded."""
_AGAINST = {
    "plain": "Against plain: the target's ordinary greedy decoding.",
    "null draft": "Against null draft: plain greedy decoding through the verification path.",
    "plain (null draft)": "Against plain (null draft): that control itself, against ordinary decoding.",
}
_Verdicts = dict[int, str]
"""Prompt to tie or defect."""


def equivalence(result: SmokeResult) -> Markup:
    """Each comparison of outputs, every split with both gaps, and the test of sampled runs."""
    if not result.equivalence and not result.sampled:
        return element("p", "No outputs were compared.")
    splits = [(item, split) for item in result.equivalence for split in item.splits]
    parts = [_compared(result.equivalence)] if result.equivalence else []
    if splits:
        parts += [element("h3", "Where outputs part"), _splits(splits)]
    elif result.equivalence:
        parts.append(element("p", "No output parts from the one it was compared with.", class_="note"))
    if result.sampled:
        parts += [element("h3", "Sampled tokens"), _sampled(result.sampled)]
    return join(parts)


def prompts(result: SmokeResult) -> Markup:
    """A table of prompts for each mode; modes with the same outcomes have one table."""
    if not result.modes:
        return element("p", "No prompt ran.")
    keyed = (((mode.outcomes, bool(mode.temperature), tuple(sorted(_verdicts(result, mode).items()))), mode) for mode in result.modes)
    note = element("p", "Exact: equal to target-only greedy decoding. Else the number is that of the first token that differs, from 0.", class_="note")
    return join((note, *(_prompts(names, mode, _verdicts(result, mode)) for names, mode in alike(keyed))))


def _compared(items: Sequence[Equivalence]) -> Markup:
    columns = [Column("Run"), Column("Against"), Column("Type"), *(Column(head, numeric=True) for head in ("Tolerance", "Exact", "Ties", "Defects"))]
    rows = [
        (
            run_name(item.mode, item.tp, item.concurrency),
            item.against,
            item.dtype,
            f"{item.tolerance_steps:g} steps",
            item.exact,
            _counted(item.ties, "open"),
            _counted(item.defects, "bad"),
        )
        for item in items
    ]
    kinds = dict.fromkeys(item.against for item in items)
    note = " ".join(
        (*(_AGAINST[kind] for kind in kinds if kind in _AGAINST), "At the first token that differs, a tie is a difference that rounding explains; a defect is any other.")
    )
    return join((table(columns, rows, label="Outputs compared", stacked=True), element("p", note, class_="note")))


def _counted(count: int, kind: str) -> object:
    return element("span", count, class_=kind) if count else count


def _splits(splits: Sequence[tuple[Equivalence, Split]]) -> Markup:
    heads = ("Prompt", "At token", "Plain token", "Drafted token", "Plain gap", "Block gap")
    columns = [Column("Run"), Column("Against"), *(Column(head, numeric=True) for head in heads), Column("Verdict")]
    rows = [
        (run_name(item.mode, item.tp, item.concurrency), item.against, split.prompt, split.at, _token(split.plain_token), _token(split.drafted_token),
         _gap(split.plain_gap_steps), _gap(split.block_gap_steps), element("span", split.verdict, class_="bad" if split.verdict == "defect" else "open"))
        for item, split in splits
    ]  # fmt: skip
    note = (
        "Gap: the target's logit of the plain token less that of the drafted one, in rounding steps of the type, under plain decoding and under block verification. "
        "It is a tie when both are within the tolerance."
    )
    return join((table(columns, rows, label="Where outputs part", stacked=True), element("p", note, class_="note")))


def _token(token: int | None) -> object:
    return "output ends" if token is None else token


def _gap(steps: float | None) -> str:
    return NOTHING if steps is None else f"{steps:+.2f}"


def _sampled(items: Sequence[Sampled]) -> Markup:
    columns = [Column("Run"), *(Column(head, numeric=True) for head in ("Temperature", "Seed", "Tokens", "p value", "Level")), Column("Holds")]
    rows = [
        (
            run_name(item.mode, item.tp, item.concurrency, item.temperature),
            f"{item.temperature:g}",
            item.seed,
            f"{item.tokens:,}",
            f"{item.p_value:.3g}",
            f"{item.level:g}",
            holds(item.p_value >= item.level),
        )
        for item in items
    ]
    note = "Kolmogorov-Smirnov test of the places of the sampled tokens in the target's own distribution."
    return join((table(columns, rows, label="Sampled tokens", stacked=True), element("p", note, class_="note")))


def holds(value: bool) -> Markup:
    """Whether a claim holds, in a sign and a word."""
    return element("span", "\N{CHECK MARK} holds" if value else "\N{BALLOT X} fails", class_="good" if value else "bad")


def _verdicts(result: SmokeResult, mode: ModeResult) -> _Verdicts:
    """Tie or defect for the prompts of one greedy mode that part from plain decoding."""
    place = (mode.mode, mode.tp, mode.concurrency)
    items = (item for item in result.equivalence if (item.mode, item.tp, item.concurrency) == place and item.against == "plain")
    return {} if mode.temperature else {split.prompt: split.verdict for item in items for split in item.splits}


def _prompts(names: str, mode: ModeResult, verdicts: _Verdicts) -> Markup:
    summary = f"{mode.total} sampled" if mode.temperature else f"{mode.exact} of {mode.total} exact"
    columns = [Column("Prompt", numeric=True), Column("Outcome"), *(Column(head, numeric=True) for head in ("Tokens", "Steps", "Accepted", "Per step"))]
    rows = (tuple(_prompt(item, verdicts.get(item.prompt), sampled=bool(mode.temperature))) for item in mode.outcomes)
    shown = table(columns, rows, label=f"Prompts, {names}")
    return element("details", element("summary", element("strong", names), f": {summary}"), shown, open=len(mode.outcomes) <= _OPEN)


def _prompt(item: PromptOutcome, verdict: str | None, *, sampled: bool) -> Iterator[object]:
    yield item.prompt
    yield _outcome(item, verdict, sampled=sampled)
    yield from (item.output_tokens, item.verify_steps, item.accepted_tokens)
    yield f"{item.accepted_tokens / item.verify_steps:.2f}" if item.verify_steps else NOTHING


def _outcome(item: PromptOutcome, verdict: str | None, *, sampled: bool) -> object:
    if sampled:
        return "sampled"
    if item.exact:
        return element("span", "exact", class_="good")
    words = verdict or "differs"
    return element("span", words if item.first_difference is None else f"{words} at {item.first_difference}", class_="open" if verdict == "tie" else "bad")
