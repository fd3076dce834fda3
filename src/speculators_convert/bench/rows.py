"""Raw rows of a server, and what each must be before it counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speculators_convert.errors import SmokeError
from speculators_convert.results.bench import BenchPlan, RequestRow, Step


def demand(plan: BenchPlan, step: Step, rows: Sequence[RequestRow]) -> None:
    """`SmokeError` naming the first row that is not a whole request of exactly the asked tokens, or a phase that is not whole."""
    for problem in problems(plan, step, rows):
        raise SmokeError(problem, where=f"server {step.index} ({step.arm}, repeat {step.repeat})", hint="the run does not count; look into the server's log and start again")


def problems(plan: BenchPlan, step: Step, rows: Sequence[RequestRow]) -> Iterator[str]:
    """What is wrong with the rows of one server."""
    drafted = next(arm.draft is not None for arm in plan.arms if arm.name == step.arm)
    for row in rows:
        name = f"request {row.request} at concurrency {row.concurrency}"
        if row.output_tokens != plan.output_tokens:
            yield f"{name} gave {row.output_tokens} output tokens, expected exactly {plan.output_tokens}"
        if not 0 <= row.begin_ns < row.first_ns < row.last_ns <= row.end_ns < 1 << 63:
            yield f"{name} has times out of order"
        if not 1 <= row.first_tokens < row.output_tokens:
            yield f"{name} got {row.first_tokens} of {row.output_tokens} tokens in its first event, so that no time per output token can be had; ask for more tokens"
        if drafted != bool(row.verify_steps):
            yield f"{name} has {row.verify_steps} verify steps; the server {'has' if drafted else 'has no'} draft"
        if not row.accepted <= row.drafted:
            yield f"{name} accepted {row.accepted} of {row.drafted} drafted tokens"
    for concurrency in plan.concurrency:
        count, names = sum(row.concurrency == concurrency for row in rows), {row.request for row in rows if row.concurrency == concurrency}
        if count != plan.workload.requests or len(names) != count:
            yield f"concurrency {concurrency} has {count} rows of {len(names)} requests, expected {plan.workload.requests}"
    if len(rows) != len(plan.concurrency) * plan.workload.requests:
        yield f"{len(rows)} rows, expected {len(plan.concurrency) * plan.workload.requests}"
