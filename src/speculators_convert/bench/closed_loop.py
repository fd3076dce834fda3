"""The load: a fixed number of requests in flight, each of exactly N tokens, timed by its token-bearing events.

Why not an existing generator: docs/bench.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from speculators_convert.errors import SmokeError
from speculators_convert.model import canonical_json, sha256_hex
from speculators_convert.results.bench import RequestRow
from speculators_convert.workloads.base import Request

Events = Iterable[dict[str, Any]]
Stream = Callable[[Request], Events]
"""Sends a request, and gives the server's events as they come."""


def run(requests: Sequence[Request], streams: Sequence[Stream], output_tokens: int) -> list[RequestRow]:
    """One row for each request, in order. There is one stream for each place in flight; a place takes the next request when its last one is complete."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for index in range(len(requests)):
        waiting.put(index)
    rows: dict[int, RequestRow] = {}
    failed, start = Event(), time.perf_counter_ns()

    def place(stream: Stream) -> None:
        try:
            while not failed.is_set():
                index = waiting.get_nowait()
                rows[index] = measure(requests[index], stream, output_tokens, len(streams), start)
        except Empty:
            return
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(streams)) as pool:
        for done in [pool.submit(place, stream) for stream in streams]:
            done.result()
    return [rows[index] for index in range(len(requests))]


def measure(request: Request, stream: Stream, output_tokens: int, concurrency: int, start: int) -> RequestRow:
    """One request from its begin to its complete answer. `SmokeError` when it ends before `output_tokens`."""
    begin = time.perf_counter_ns()
    stamps: list[tuple[int, int]] = []
    last: dict[str, Any] = {}
    for at, event in _stamped(stream(request)):
        known, last = (stamps[-1][1] if stamps else 0), event
        tokens = event["meta_info"]["completion_tokens"]
        if tokens > known:
            stamps.append((at, tokens))
    end = time.perf_counter_ns()
    meta = last.get("meta_info", {})
    demand_whole(request.name, (meta.get("finish_reason") or {}).get("type"), stamps[-1][1] if stamps else 0, output_tokens)
    return RequestRow(
        concurrency=concurrency,
        request=request.name,
        input_tokens=meta["prompt_tokens"],
        output_tokens=stamps[-1][1],
        begin_ns=begin - start,
        first_ns=stamps[0][0] - start,
        last_ns=stamps[-1][0] - start,
        end_ns=end - start,
        first_tokens=stamps[0][1],
        events=len(stamps),
        verify_steps=meta.get("spec_verify_ct", 0),
        accepted=meta.get("spec_num_correct_drafts", 0),
        drafted=meta.get("spec_num_proposed_drafts", 0),
        histogram=tuple(meta.get("spec_correct_drafts_histogram", ())),
        output_sha256=sha256_hex(canonical_json(last["output_ids"])),
    )


def demand_whole(name: str, finish: str | None, tokens: int, expected: int) -> None:
    """`SmokeError` unless the answer ended by its length, at exactly `expected` tokens."""
    if finish != "length" or tokens != expected:
        raise SmokeError(
            "a request did not give the tokens that were asked for", where=f"request {name}", measured=f"{tokens} tokens, finish reason {finish}",
            expected=f"{expected} tokens, finish reason length", hint="the run does not count; look into the server's log",
        )  # fmt: skip


def _stamped(events: Events) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each event with the time at which it was there."""
    iterator = iter(events)
    for event in iterator:
        yield time.perf_counter_ns(), event
