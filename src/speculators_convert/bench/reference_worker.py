"""One process of a run of the reference engine: a job on the first line of stdin, requests on the next, rows on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from speculators_convert.bench.reference import Ask, Job, Rows
from speculators_convert.errors import SpecConvertError
from speculators_convert.model import canonical_json, packed, sha256_hex, unpacked
from speculators_convert.results.bench import RequestRow
from speculators_convert.rewrite.ranks import assembled
from speculators_convert.smoke.engine import fit, graphs, load, loop, session
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.sources import open_source
from speculators_convert.spec import known

Stamps = list[tuple[int, int]]
"""Time and tokens known at that time, as they grow."""
Generate = Callable[[Sequence[int]], tuple[list[int], Stamps, list[int]]]
"""Output, stamps, and accepted draft tokens of each verify step."""


def main() -> int:
    """Answer each line; nothing but answers goes to stdout, whatever a library prints."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = unpacked(Job, sys.stdin.buffer.readline())
    try:
        target, generate, gamma = prepare(job)
        _answer(answers.write, answers.flush, Rows(rows=()))
        with session.threads(target.parameter_count() if job.device == "cpu" else None):
            for line in sys.stdin.buffer:
                ask, start = unpacked(Ask, line), time.perf_counter_ns()
                _answer(answers.write, answers.flush, Rows(rows=tuple(row(name, ids, generate, gamma, start) for name, ids in ask.requests)))
    except SpecConvertError as error:
        sys.stderr.write(f"error {error.code}: {error}\n{error.hint}\n")
        return 1
    return 0


def prepare(job: Job) -> tuple[Target, Generate, int]:
    """The loaded target, how a request is generated, and gamma (0 for the target alone)."""
    where, limits = load.placement(job.dtype, job.device), loop.Limits(job.output_tokens)
    target = load_target(Path(job.target), known(job.spec.target_layer_ids, "target_layer_ids"), where)
    fit.demand_fit(job.spec, target)
    if not job.drafted:
        return target, _plain(target, limits), 0
    draft = Draft(Reading(job.spec), load.read_weights(job.spec, assembled(open_source(job.reference)), where), target.shared)
    return target, _drafted(draft, target, limits, job), draft.gamma


def _plain(target: Target, limits: loop.Limits) -> Generate:
    def generate(ids: Sequence[int]) -> tuple[list[int], Stamps, list[int]]:
        stamps: Stamps = []
        tokens = loop.generate_plain(target, ids, limits, lambda known_tokens: stamps.append((time.perf_counter_ns(), known_tokens)))
        return tokens, stamps, []

    return generate


def _drafted(draft: Draft, target: Target, limits: loop.Limits, job: Job) -> Generate:
    state, steps = None, loop.EAGER
    if job.mode == "graph":
        state = loop.empty(draft, target, 1, job.longest + loop.room(draft, limits))
        steps = graphs.static(draft, target, state, steps)

    def generate(ids: Sequence[int]) -> tuple[list[int], Stamps, list[int]]:
        times: list[int] = []
        (run,) = loop.generate(draft, target, [ids], limits, lambda _: times.append(time.perf_counter_ns()), steps, state)
        times.append(time.perf_counter_ns())
        known_tokens, stamps = 1, [(times[0], 1)]
        for at, accepted in zip(times[1:], run.accepted, strict=True):
            known_tokens = min(known_tokens + accepted + 1, limits.max_new_tokens)
            stamps.append((at, known_tokens))
        return run.tokens, stamps, run.accepted

    return generate


def row(name: str, ids: Sequence[int], generate: Generate, gamma: int, start: int) -> RequestRow:
    """One measured request."""
    begin = time.perf_counter_ns()
    tokens, stamps, accepted = generate(ids)
    end = time.perf_counter_ns()
    return RequestRow(
        concurrency=1,
        request=name,
        input_tokens=len(ids),
        output_tokens=len(tokens),
        begin_ns=begin - start,
        first_ns=stamps[0][0] - start,
        last_ns=stamps[-1][0] - start,
        end_ns=end - start,
        first_tokens=stamps[0][1],
        events=len(stamps),
        verify_steps=len(accepted),
        accepted=sum(accepted),
        drafted=len(accepted) * gamma,
        histogram=tuple(accepted.count(count) for count in range(gamma + 1)) if accepted else (),
        output_sha256=sha256_hex(canonical_json(tokens)),
    )


def _answer(write: Callable[[bytes], int], flush: Callable[[], None], rows: Rows) -> None:
    write(packed(rows) + b"\n")
    flush()


if __name__ == "__main__":
    sys.exit(main())
