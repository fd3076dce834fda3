"""The load: places in flight, stamps by token-bearing events, and answers that are not whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from speculators_convert.bench import closed_loop
from speculators_convert.errors import SmokeError
from speculators_convert.workloads.base import Request

REQUESTS = [Request(f"r{index}", "", (1, 2, 3)) for index in range(12)]


def event(tokens: int, finish: str | None = None, **meta: object) -> dict[str, Any]:
    counted = {"completion_tokens": tokens, "prompt_tokens": 3, "finish_reason": {"type": finish} if finish else None, **meta}
    return {"output_ids": list(range(tokens)), "meta_info": counted}


def test_a_place_takes_the_next_request_when_its_last_one_is_complete() -> None:
    lock, flying, most = threading.Lock(), 0, 0

    def stream(request: Request) -> Iterator[dict[str, Any]]:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        time.sleep(0.002)
        yield event(1)
        time.sleep(0.002)
        yield event(4, "length")
        with lock:
            flying -= 1

    rows = closed_loop.run(REQUESTS, [stream] * 3, 4)
    assert most == 3
    assert [row.request for row in rows] == [request.name for request in REQUESTS]
    assert {row.concurrency for row in rows} == {3}
    assert sum(row.begin_ns < rows[0].end_ns for row in rows) <= 5  # the first three, and what other places took meanwhile


def test_only_events_that_bring_tokens_are_stamped() -> None:
    def stream(request: Request) -> Iterator[dict[str, Any]]:
        yield event(0)
        time.sleep(0.02)
        yield event(3)
        time.sleep(0.02)
        yield event(5, spec_verify_ct=2)
        time.sleep(0.02)
        yield event(5, "length", spec_verify_ct=2, spec_num_correct_drafts=3, spec_num_proposed_drafts=12, spec_correct_drafts_histogram=[0, 1, 1])

    (row,) = closed_loop.run(REQUESTS[:1], [stream], 5)
    assert (row.events, row.first_tokens, row.output_tokens) == (2, 3, 5)
    assert row.first_ns - row.begin_ns >= 20_000_000
    assert row.end_ns - row.last_ns >= 20_000_000
    assert (row.verify_steps, row.accepted, row.drafted, row.histogram) == (2, 3, 12, (0, 1, 1))


@pytest.mark.parametrize(
    ("last", "measured"),
    [(event(3, "length"), "3 tokens, finish reason length"), (event(4, "stop"), "4 tokens, finish reason stop"), (event(4), "4 tokens, finish reason None"), (None, "0 tokens")],
)
def test_a_request_that_ends_early_fails_the_run(last: dict[str, Any] | None, measured: str) -> None:
    asked: list[str] = []

    def stream(request: Request) -> Iterator[dict[str, Any]]:
        asked.append(request.name)
        yield from [last] if last else []

    with pytest.raises(SmokeError, match="did not give the tokens") as caught:
        closed_loop.run(REQUESTS, [stream], 4)
    assert measured in str(caught.value)
    assert asked == ["r0"]
