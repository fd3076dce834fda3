"""From plan and raw rows to the summary. Pure, in integers and single roundings, so that it comes out the same bit for bit anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from math import fsum
from statistics import median

from speculators_convert.results.bench import (
    DRAFTED,
    PLAIN,
    Acceptance,
    ArmResult,
    BenchPlan,
    BenchReport,
    Change,
    ConcurrencyResult,
    Distribution,
    RequestRow,
)

Rows = Sequence[RequestRow]
_MS, _S = 1_000_000, 1_000_000_000
CURVE = tuple(range(0, 101, 5))


def report(plan: BenchPlan, rows: Mapping[int, Rows], rows_sha256: Sequence[str]) -> BenchReport:
    """The summary of all steps; `rows` has the rows of each step by its index."""
    results = tuple(_at(plan, rows, concurrency) for concurrency in plan.concurrency)
    worse = tuple(
        f"concurrency {result.concurrency}, {change.arm}: {change.metric} is {change.median:.3f} times that of the target alone ({change.low:.3f} to {change.high:.3f})"
        for result in results
        for change in result.changes
        if change.verdict == "worse" and change.against == PLAIN
    )
    return BenchReport(plan=plan, rows_sha256=tuple(rows_sha256), results=results, regressions=worse)


def _at(plan: BenchPlan, rows: Mapping[int, Rows], concurrency: int) -> ConcurrencyResult:
    repeats = {arm.name: [_phase(rows[step.index], concurrency) for step in plan.steps if step.arm == arm.name] for arm in plan.arms}
    arms = tuple(_arm(name, phases, repeats[PLAIN]) for name, phases in repeats.items())
    changes = tuple(
        _change(metric, measure, higher, (name, against), repeats)
        for against in (PLAIN, DRAFTED)
        for name in repeats
        if name not in {PLAIN, against}
        for metric, (measure, higher) in METRICS.items()
    )
    return ConcurrencyResult(concurrency=concurrency, arms=arms, changes=changes)


def _phase(rows: Rows, concurrency: int) -> Rows:
    return [row for row in rows if row.concurrency == concurrency]


def _arm(name: str, repeats: Sequence[Rows], plain: Sequence[Rows]) -> ArmResult:
    pooled = [row for rows in repeats for row in rows]
    rates = tuple(throughput(rows) for rows in repeats)
    return ArmResult(
        arm=name,
        requests=len(pooled),
        output_tokens=sum(row.output_tokens for row in pooled),
        throughput=rates,
        throughput_median=median(rates),
        end_to_end=_distribution(end_to_end(pooled)),
        time_to_first_token=_distribution(time_to_first_token(pooled)),
        time_per_output_token=_distribution(time_per_output_token(pooled)),
        steps=sum(row.verify_steps + 1 if row.verify_steps else row.output_tokens for row in pooled),
        events=sum(row.events for row in pooled),
        step_ms=sum(row.last_ns - row.first_ns for row in pooled) / (sum(row.verify_steps or row.output_tokens - row.first_tokens for row in pooled) * _MS),
        acceptance=_acceptance(pooled),
        outputs_equal=_equal_outputs(repeats),
        outputs_plain=_equal_outputs([*repeats, *plain]),
    )


def throughput(rows: Rows) -> float:
    """Output tokens per second from the first begin to the last end."""
    span = max(row.end_ns for row in rows) - min(row.begin_ns for row in rows)
    return sum(row.output_tokens for row in rows) * _S / span


def end_to_end(rows: Rows) -> list[float]:
    """Milliseconds from begin to end of each request, sorted."""
    return sorted((row.end_ns - row.begin_ns) / _MS for row in rows)


def time_to_first_token(rows: Rows) -> list[float]:
    """Milliseconds from begin to the first token-bearing event of each request, sorted."""
    return sorted((row.first_ns - row.begin_ns) / _MS for row in rows)


def time_per_output_token(rows: Rows) -> list[float]:
    """Milliseconds between first and last token-bearing event over the tokens that came after the first, sorted."""
    return sorted((row.last_ns - row.first_ns) / ((row.output_tokens - row.first_tokens) * _MS) for row in rows)


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest rank in sorted `values`: the smallest value that `percent` of them do not exceed."""
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def _distribution(values: Sequence[float]) -> Distribution:
    return Distribution(
        count=len(values), mean=fsum(values) / len(values), p50=percentile(values, 50), p99=percentile(values, 99), curve=tuple(percentile(values, at) for at in CURVE)
    )


def _acceptance(rows: Rows) -> Acceptance | None:
    steps, accepted, drafted = (sum(getattr(row, name) for row in rows) for name in ("verify_steps", "accepted", "drafted"))
    if not steps:
        return None
    histogram = tuple(sum(column) for column in zip_longest(*(row.histogram for row in rows), fillvalue=0))
    return Acceptance(verify_steps=steps, accepted=accepted, drafted=drafted, length=(accepted + steps) / steps, rate=accepted / drafted if drafted else 0.0, histogram=histogram)


def _equal_outputs(repeats: Sequence[Rows]) -> int:
    outputs = [{row.request: row.output_sha256 for row in rows} for rows in repeats]
    return sum(all(other.get(name) == digest for other in outputs) for name, digest in outputs[0].items())


def _change(metric: str, measure: Callable[[Rows], float], higher: bool, names: tuple[str, str], repeats: Mapping[str, Sequence[Rows]]) -> Change:
    arm, against = names
    ratios = tuple(measure(rows) / measure(base) for rows, base in zip(repeats[arm], repeats[against], strict=True))
    gains = [ratio > 1 if higher else ratio < 1 for ratio in ratios]
    losses = [ratio < 1 if higher else ratio > 1 for ratio in ratios]
    verdict = "unclear" if len(ratios) < 2 else "better" if all(gains) else "worse" if all(losses) else "unclear"
    return Change(metric=metric, arm=arm, against=against, ratios=ratios, median=median(ratios), low=min(ratios), high=max(ratios), verdict=verdict)


def _percentile_of(times: Callable[[Rows], list[float]], percent: int) -> Callable[[Rows], float]:
    return lambda rows: percentile(times(rows), percent)


METRICS: dict[str, tuple[Callable[[Rows], float], bool]] = {
    "throughput": (throughput, True),
    "end to end p50": (_percentile_of(end_to_end, 50), False),
    "end to end p99": (_percentile_of(end_to_end, 99), False),
    "time to first token p50": (_percentile_of(time_to_first_token, 50), False),
    "time to first token p99": (_percentile_of(time_to_first_token, 99), False),
    "time per output token p50": (_percentile_of(time_per_output_token, 50), False),
    "time per output token p99": (_percentile_of(time_per_output_token, 99), False),
}
"""What is paired within each repeat, and whether more is better."""
