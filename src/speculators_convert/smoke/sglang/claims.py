"""What the answers of all servers prove, claim by claim."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from speculators_convert.results.smoke import Comparison, ModeResult, PromptOutcome, SmokeConfig
from speculators_convert.serving.client import Answer
from speculators_convert.serving.config import ServerConfig
from speculators_convert.smoke.compare import Drafted
from speculators_convert.smoke.sglang import plan
from speculators_convert.smoke.sglang.ask import Rows

LENGTH_MARGIN, RESAMPLES, LEVEL = 0.1, 2000, 0.99
"""Acceptance lengths differ when they do so by more than the margin and the 99% interval of the paired difference leaves out zero."""
SHARE_MARGIN, SHARE_SIGMAS = 0.03, 4.0
Tokens = Sequence[Sequence[int]]


def serves(server: ServerConfig, rows: Rows) -> Comparison:
    """The server came up and answered all that it was asked."""
    measured = f"up after {rows.record.start_seconds:.1f} s, asked for {rows.record.asked_seconds:.1f} s"
    return Comparison(name=f"{server.name}: loads and answers", holds=True, measured=measured, expected="a server that loads and answers")


def same_length(name: str, what: str, left: ModeResult, right: ModeResult) -> Comparison:
    """Acceptance of two runs over the same prompts and output lengths."""
    rows = [pair for pair in zip(left.outcomes, right.outcomes, strict=True) if _drafted(pair)]
    return _length_claim(f"{name}: acceptance length is {what}", (left, right), rows, "")


def same_at_once(name: str, together: ModeResult, single: ModeResult, limits: Sequence[int], engine: Drafted | None) -> Comparison:
    """Acceptance of the prompts at once, of `limits` tokens each, against one at a time, of the largest limit each.

    Drafts are not accepted alike everywhere in an output. What the shorter outputs alone change is the difference that they make to the reference
    engine, and is taken off; without it the prompts with whole outputs are compared.
    """
    if engine is None:
        whole = [index for index, limit in enumerate(limits) if limit == max(limits)]
        rows: list[tuple[PromptOutcome, ...]] = [(together.outcomes[index], single.outcomes[index]) for index in whole]
        beside = f" over the {len(whole)} prompts with whole outputs"
    else:
        cut, full = (run.against(run.tokens, 0.0) for run in (engine.cut(limits), engine))
        rows = list(zip(together.outcomes, single.outcomes, cut.outcomes, full.outcomes, strict=True))
        beside = f" beside {cut.acceptance_length - full.acceptance_length:+.3f} for the shorter outputs"
    return _length_claim(f"{name}: acceptance length is that of one request at a time", (together, single), [row for row in rows if _drafted(row)], beside)


def _length_claim(name: str, runs: tuple[ModeResult, ModeResult], rows: Sequence[tuple[PromptOutcome, ...]], beside: str) -> Comparison:
    difference, (low, high) = _difference(rows), interval(rows)
    holds = abs(difference) <= LENGTH_MARGIN or low <= 0 <= high
    measured = f"{runs[0].acceptance_length:.3f}, difference {difference:+.3f} [{low:+.3f}, {high:+.3f}]{beside}"
    return Comparison(name=name, holds=holds, measured=measured, expected=f"{runs[1].acceptance_length:.3f} +- {LENGTH_MARGIN} or within its noise")


def _drafted(row: Sequence[PromptOutcome]) -> bool:
    return all(item.verify_steps for item in row)


def same_positions(name: str, what: str, left: ModeResult, right: ModeResult) -> Comparison:
    """Share of steps in which each draft position was accepted: the worst position against its own noise."""
    worst, found = -math.inf, ""
    for position, (mine, other) in enumerate(zip(left.acceptance_by_position, right.acceptance_by_position, strict=True), 1):
        share = (mine + other) / 2
        allowed = SHARE_MARGIN + SHARE_SIGMAS * math.sqrt(share * (1 - share) * (1 / max(left.verify_steps, 1) + 1 / max(right.verify_steps, 1)))
        if abs(mine - other) - allowed > worst:
            worst, found = abs(mine - other) - allowed, f"position {position}: {mine:.1%} against {other:.1%}, allowed {allowed:.1%}"
    return Comparison(name=f"{name}: acceptance by position is {what}", holds=worst <= 0, measured=found, expected="each position within its allowance")


def interval(rows: Sequence[tuple[PromptOutcome, ...]]) -> tuple[float, float]:
    """Bootstrap interval of the difference of acceptance lengths, prompts resampled with all of their runs; all numbers for one prompt."""
    if len(rows) < 2:
        return -math.inf, math.inf
    generator = random.Random(0)  # noqa: S311 (resampling, no secret)
    found = sorted(_difference(generator.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * (1 - LEVEL) / 2)
    return found[edge], found[-1 - edge]


def _difference(rows: Sequence[tuple[PromptOutcome, ...]]) -> float:
    """First run less second, and less the same difference of a third and a fourth where there are these; 0 without a prompt."""
    if not rows:
        return 0.0
    return sum(sign * _length(run) for sign, run in zip((1, -1, -1, 1), zip(*rows, strict=True), strict=False))


def _length(outcomes: Sequence[PromptOutcome]) -> float:
    steps = sum(item.verify_steps for item in outcomes)
    return (sum(item.accepted_tokens for item in outcomes) + steps) / steps


def same_tokens(name: str, left: Tokens, right: Tokens, expected: str = "all prompts equal") -> Comparison:
    """Token for token, each output whole; empty ones show nothing."""
    same = sum(tuple(mine) == tuple(other) and bool(mine) for mine, other in zip(left, right, strict=True))
    return Comparison(name=name, holds=same == len(left), measured=f"{same} of {len(left)} prompts equal", expected=expected)


def stays(rows: Rows, server: ServerConfig) -> Iterator[Comparison]:
    """A flush and an abort leave the server as it was."""
    first = [answer.output_ids for answer in rows.greedy]
    if rows.flushed:
        yield same_tokens(f"{server.name}: the same tokens after /flush_cache", tokens(rows.flushed), first[: len(rows.flushed)])
    if rows.abort_finish is not None:
        yield Comparison(name=f"{server.name}: a running request can be aborted", holds=rows.abort_finish == "abort", measured=rows.abort_finish, expected="abort")
    if rows.after_abort:
        yield same_tokens(f"{server.name}: the same tokens after an aborted request", tokens(rows.after_abort), first[: len(rows.after_abort)])
    if rows.image_answer is not None:
        yield Comparison(
            name=f"{server.name}: a question about an image is answered", holds=bool(rows.image_answer), measured=f"{len(rows.image_answer)} characters", expected="text"
        )


def control(config: SmokeConfig, rows: Mapping[str, Rows]) -> Iterator[Comparison]:
    """The null draft proposes, is never accepted, and gives what the draft gives: the losslessness proof."""
    for mode in config.modes:
        deterministic = plan.has_deterministic_kernels(config)
        null = rows.get(plan.server_name(plan.NULL, mode, config.tp, deterministic=deterministic))
        drafted = rows.get(plan.control_name(config, mode))
        if null is None:
            continue
        name = f"{mode} tp {config.tp}"
        steps, accepted = sum(answer.verify_steps for answer in null.greedy), sum(answer.accepted for answer in null.greedy)
        proposed = sum(answer.drafted for answer in null.greedy)
        measured = f"{proposed} proposed, {accepted} accepted in {steps} steps"
        yield Comparison(
            name=f"{name}: the null draft proposes and is never accepted", holds=proposed > 0 and accepted == 0, measured=measured, expected="0 accepted of more than 0"
        )
        if drafted is None:
            continue
        flags = " under deterministic inference" if deterministic else ""
        yield same_tokens(f"{name}: drafted greedy equals the null draft's{flags}", tokens(drafted.greedy), tokens(null.greedy))
        many = f"{config.servers.concurrency} at once"
        yield same_tokens(f"{name}, {many}: drafted greedy equals the null draft's{flags}", tokens(drafted.batched), tokens(null.batched))
        limits = plan.limits(config.max_new_tokens, len(drafted.greedy))
        alone = [ids[:limit] for ids, limit in zip(tokens(drafted.greedy), limits, strict=True)]
        yield same_tokens(f"{name}: {many} gives the tokens of one at a time{flags}", tokens(drafted.batched), alone)


def window(drafted: Drafted, prompts: Sequence[Sequence[int]], sizes: Sequence[int]) -> Iterator[Comparison]:
    """Some context went past the draft's sliding window, so that the claims about tokens and acceptance cover it."""
    if sizes:
        longest = max(len(prompt) + len(output) for prompt, output in zip(prompts, drafted.tokens, strict=True))
        name = f"{drafted.name}: some context goes past the sliding window"
        yield Comparison(name=name, holds=longest > max(sizes), measured=f"{longest} tokens", expected=f"more than {max(sizes)}")


def tokens(answers: Sequence[Answer]) -> list[tuple[int, ...]]:
    """Output ids of each answer."""
    return [answer.output_ids for answer in answers]
