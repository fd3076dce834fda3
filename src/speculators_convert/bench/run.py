"""The run: a fresh server for each step, warmed up and then measured, kept when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from speculators_convert.bench import rows, store
from speculators_convert.bench.engine import Engine, Server
from speculators_convert.results.bench import BenchPlan, BenchReport, RequestRow, ServerRun, Step
from speculators_convert.workloads.base import Workload

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The budget ended first; the same call goes on from there."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One server's rows, and what is recorded of it."""

    run: ServerRun
    rows: list[RequestRow]


def run(plan: BenchPlan, workload: Workload, engine: Engine, out: Path, budget: float | None, progress: Progress) -> BenchReport | Unfinished:
    """All steps that `out` lacks while the budget lasts, then the summary. One group is always run."""
    store.open_folder(out, plan, workload)
    with store.locked(out):
        return _locked(plan, workload, engine, out, budget, progress)


def _locked(plan: BenchPlan, workload: Workload, engine: Engine, out: Path, budget: float | None, progress: Progress) -> BenchReport | Unfinished:
    done, began, longest = store.finished(out, plan), time.monotonic(), 0.0
    pending = [step for step in plan.steps if step.index not in done]
    count = len(plan.steps) - len(pending)
    for group in (pending[at : at + plan.side_by_side] for at in range(0, len(pending), plan.side_by_side)):
        if budget is not None and longest and time.monotonic() - began + longest > budget:
            return Unfinished(count, len(plan.steps))
        started = time.monotonic()
        _group(group, plan, workload, engine, out, partial(progress, count, len(plan.steps)))
        count, longest = count + len(group), max(longest, time.monotonic() - started)
    progress(count, len(plan.steps), "done")
    return store.seal(out, plan)


def _group(group: Sequence[Step], plan: BenchPlan, workload: Workload, engine: Engine, out: Path, say: Callable[[str], None]) -> None:
    """Servers that start together and are asked one after the other. Those that were measured are kept even when a later one fails."""
    folders = [store.part(out, step) for step in group]
    measured: list[Measured] = []
    try:
        say("starting " + ", ".join(step.arm for step in group))
        with _started(group, folders, engine) as servers:
            for step, server in zip(group, servers, strict=True):
                say(f"measuring {step.arm}, repeat {step.repeat + 1}")
                measured.append(_measure(step, server, plan, workload, tuple(item.index for item in group)))
    finally:
        for folder, item in zip(folders, measured, strict=False):
            store.keep(out, folder, item.run, item.rows)


@contextmanager
def _started(group: Sequence[Step], folders: Sequence[Path], engine: Engine) -> Iterator[list[Server]]:
    """All servers of a group, started at once and ended at once; none is left when this returns."""
    contexts = [engine.start(step, folder / store.LOG) for step, folder in zip(group, folders, strict=True)]
    with ThreadPoolExecutor(len(contexts)) as pool:
        starting = [pool.submit(context.__enter__) for context in contexts]
        try:
            yield [start.result() for start in starting]
        except BaseException:
            engine.end()
            raise
        finally:
            up = [context for context, start in zip(contexts, starting, strict=True) if start.exception() is None]
            for ended in [pool.submit(context.__exit__, None, None, None) for context in up]:
                ended.result()


def _measure(step: Step, server: Server, plan: BenchPlan, workload: Workload, group: tuple[int, ...]) -> Measured:
    """Each concurrency: a warm-up at that concurrency, then all requests. `SmokeError` for rows that do not count."""
    began, found = time.monotonic(), list[RequestRow]()
    for concurrency in plan.concurrency:
        count = plan.warm_up * concurrency
        server.warm_up([workload.requests[index % len(workload.requests)] for index in range(count)], concurrency)
        found += server.measure(workload.requests, concurrency)
    rows.demand(plan, step, found)
    record = ServerRun(
        step=step,
        command=server.command,
        variables=server.variables,
        group=group,
        start_seconds=round(server.start_seconds, 3),
        asked_seconds=round(time.monotonic() - began, 3),
        rows_sha256="",
        log_sha256="",
    )
    return Measured(record, found)
