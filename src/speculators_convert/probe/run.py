"""The probe: build each reading over one set of weights, score all of them on each passage, judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speculators_convert.errors import SmokeError
from speculators_convert.probe.hypotheses import STATED, Hypothesis, Question
from speculators_convert.probe.judge import Difference, Tally, compare
from speculators_convert.probe.passages import Material, gather
from speculators_convert.probe.score import Passage, Steps, divergence, replay, text_anchors
from speculators_convert.results.probe import HypothesisResult
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.target import Target
from speculators_convert.sources import Source
from speculators_convert.spec import D2T, known

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The verdict on each reading, and what it cost."""

    hypotheses: tuple[HypothesisResult, ...]
    best: str
    contradicts: bool
    reasons: tuple[str, ...]
    texts: int
    continuations: int
    target_passes: int


def rank(question: Question, source: Source, target: Target, prompts: Sequence[Prompt], where: Placement, progress: Progress) -> Ranking:
    """Every reading of `question` on the same tokens. The number of target passes depends on `prompts` only."""
    drafts, refused = _build(question, source, target, where)
    if STATED not in drafts:
        raise SmokeError(f"the file as stated cannot be run ({refused[STATED]})", where=source.id.name, hint="run inspect for the reason; --set states a fact")
    before = target.passes
    target.watch(question.taps())
    slots = known(question.stated.reading.spec.query_slots, "query_slots")
    material = gather(target, prompts, slots)
    tallies = _score(drafts, material, target, question.taps(), slots, progress)
    differences = {name: compare(tally, tallies[STATED]) for name, tally in tallies.items() if name != STATED}
    best = _best(differences, tallies)
    results = tuple(_result(item, tallies.get(item.name), differences.get(item.name), best, refused.get(item.name, "")) for item in question.all)
    contradicts, reasons = conclude(question, results, best)
    return Ranking(results, best, contradicts, reasons, len(material.texts), len(material.continuations), target.passes - before)


def conclude(question: Question, results: Sequence[HypothesisResult], best: str) -> tuple[bool, tuple[str, ...]]:
    """Does the best reading contradict the file, and why. A fact that the file leaves open can't be contradicted."""
    spec, reasons, contradicts = question.stated.reading.spec, list[str](), False
    found = {item.name: item for item in results}
    if best != STATED:
        winner = found[best]
        is_open = winner.fact in question.open_facts
        contradicts = not is_open
        verb = "settles what the file leaves open" if is_open else "contradicts the file"
        reasons.append(f"{best} ({winner.reading}) {verb}: {_numbers(winner)}")
    if spec.d2t is D2T.ABSOLUTE and spec.format != "gguf":
        rule = found.get("d2t offset")
        if best == STATED and rule is not None and rule.verdict in ("worse", "impossible"):
            contradicts = True
            reasons.append(f"d2t holds absolute ids, where the format has offsets: read as offsets, {rule.reason or _numbers(rule)}")
    if not reasons:
        worse = [item for item in results if item.verdict in ("worse", "impossible")]
        ties = [item.name for item in results if item.verdict == "tie"]
        reasons.append(f"no reading is better than the file's own; {len(worse)} of {len(results) - 1} are worse" + (f", ties: {', '.join(ties)}" if ties else ""))
    for fact in sorted(question.open_facts):
        if fact != found[best].fact:
            reasons.append(f"{fact} is left open by the file; the reading taken is {question.stated.says}")
    return contradicts, tuple(reasons)


def _build(question: Question, source: Source, target: Target, where: Placement) -> tuple[dict[str, Draft], dict[str, str]]:
    """A draft for each reading over one set of weights; why not, for those that cannot be."""
    weights = read_weights(question.stated.reading.spec, source, where)
    drafts, refused = dict[str, Draft](), dict[str, str]()
    for item in question.all:
        try:
            drafts[item.name] = Draft(item.reading, weights, target.shared)
        except SmokeError as error:
            refused[item.name] = str(error)
    return drafts, refused


def _score(drafts: dict[str, Draft], material: Material, target: Target, taps: Sequence[int], slots: int, progress: Progress) -> dict[str, Tally]:
    tallies = {name: Tally() for name in drafts}
    for done, (continued, prompt, passage) in enumerate(material.read(target, taps)):
        progress(done, len(material), "texts")
        for name, draft in drafts.items():
            _add(tallies[name], draft, passage, slots, prompt if continued else None)
    progress(len(material), len(material), "texts")
    return tallies


def _add(tally: Tally, draft: Draft, passage: Passage, slots: int, prompt: int | None) -> None:
    if prompt is None:
        anchors = text_anchors(len(passage.ids), slots + 1)
        tally.kl += [divergence(draft, passage, anchors)] if anchors else []
    else:
        tally.decoded[prompt] = tally.decoded.get(prompt, Steps(0, 0)) + replay(draft, passage, slots)


def _best(differences: dict[str, Difference], tallies: dict[str, Tally]) -> str:
    """The stated reading, unless some are better: then the one of these that accepts most."""
    better = [name for name, difference in differences.items() if difference.verdict == "better"]
    return max(better, key=lambda name: tallies[name].accepted, default=STATED)


def _result(item: Hypothesis, tally: Tally | None, difference: Difference | None, best: str, refused: str) -> HypothesisResult:
    if tally is None:
        return HypothesisResult(
            name=item.name, fact=item.fact, reading=item.says, accepted=None, kl=None, difference=None, interval=None, kl_difference=None, kl_interval=None,
            verdict="impossible", reason=refused,
        )  # fmt: skip
    verdict = "best" if item.name == best else difference.verdict if difference else "worse"
    return HypothesisResult(
        name=item.name,
        fact=item.fact,
        reading=item.says,
        accepted=tally.accepted,
        kl=tally.kl_at(0),
        difference=difference.accepted if difference else 0.0,
        interval=_finite(difference.interval) if difference else (0.0, 0.0),
        kl_difference=difference.kl if difference else 0.0,
        kl_interval=_finite(difference.kl_interval) if difference else (0.0, 0.0),
        verdict=verdict,
    )


def _finite(interval: tuple[float, float]) -> tuple[float, float] | None:
    """None for the interval of a single text, which is all numbers."""
    return interval if all(map(math.isfinite, interval)) else None


def _numbers(item: HypothesisResult) -> str:
    if item.difference is None or item.interval is None or item.kl_difference is None:
        return item.reason
    low, high = item.interval
    return f"{item.difference:+.2f} tokens per step [{low:+.2f}, {high:+.2f}], {item.kl_difference:+.2f} nats"
