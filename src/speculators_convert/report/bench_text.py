"""Text form of a performance run."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.report.values_text import value_lines
from speculators_convert.results.bench import ArmResult, BenchReport, Change, ConcurrencyResult, Distribution


def bench_lines(report: BenchReport) -> Iterator[str]:
    """What was run, each concurrency with all arms and their changes, and what got worse."""
    plan = report.plan
    yield f"target    {plan.target.reference}  sha256:{plan.target.digest[:16]}"
    for arm in plan.arms:
        if arm.draft is not None:
            yield f"{arm.name:<9} {arm.draft.reference}  sha256:{arm.draft.digest[:16]}{'' if arm.plugin else '  without the plugin'}"
    settings, *sentences = value_lines(plan.settings)
    yield f"engine    {plan.engine}  {settings}"
    yield from (f"          {line}" for line in sentences)
    yield f"workload  {plan.workload.name}: {plan.workload.requests} requests of {plan.output_tokens} output tokens, {len(plan.workload.skipped)} skipped for want of room"
    yield f"order     {', '.join(step.arm for step in plan.steps)}; a fresh server each, {plan.side_by_side} started together"
    for result in report.results:
        yield from _concurrency(result)
    yield ""
    yield from (f"WORSE  {line}" for line in report.regressions) if report.regressions else (nothing_worse(report),)


def nothing_worse(report: BenchReport) -> str:
    """What can be said when no regression was found."""
    return "One repeat says nothing about better or worse" if report.plan.repeats < 2 else "Nothing is worse than the target alone in every repeat"


def _concurrency(result: ConcurrencyResult) -> Iterator[str]:
    yield ""
    yield f"concurrency {result.concurrency}"
    for arm in result.arms:
        yield from _arm(arm)
    for change in result.changes:
        yield _change(change)


def _arm(arm: ArmResult) -> Iterator[str]:
    each = ", ".join(f"{value:.1f}" for value in arm.throughput)
    yield f"  {arm.arm}: {arm.throughput_median:.1f} tokens/s, median of {each}"
    yield f"    {arm.requests} requests; outputs that are the same in each repeat: {arm.outputs_equal}, that are the target's: {arm.outputs_plain}"
    for name, times in (("end to end", arm.end_to_end), ("time to first token", arm.time_to_first_token), ("time per output token", arm.time_per_output_token)):
        yield _times(name, times)
    yield f"    {'time per step':<22}     {arm.step_ms:9.3f} ms  {arm.events} events of {arm.steps} steps came apart"
    if arm.acceptance is not None:
        found = arm.acceptance
        yield f"    acceptance length {found.length:.3f} ({found.accepted} accepted + {found.verify_steps} bonus in {found.verify_steps} steps), rate {found.rate:.1%}"


def _times(name: str, times: Distribution) -> str:
    return f"    {name:<22} p50 {times.p50:9.3f} ms  p99 {times.p99:9.3f} ms"


def _change(change: Change) -> str:
    return f"  {change.verdict:<8} {change.arm} / {change.against}  {change.metric:<26} {change.median:.3f} ({change.low:.3f} to {change.high:.3f})"
