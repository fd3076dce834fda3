"""Plans and rows for tests of a summary."""

from __future__ import annotations

from typing import Any

from speculators_convert.bench.plan import order
from speculators_convert.results.bench import Arm, BenchPlan, RequestRow, WorkloadRecord
from speculators_convert.results.smoke import CheckpointDigest

TOKENS = 11
NOTHING = CheckpointDigest(digest="0" * 64, files={}, reference="x")


def plan_of(*, repeats: int = 2, requests: int = 1, concurrency: tuple[int, ...] = (1,), digest: str = "0" * 64) -> BenchPlan:
    return BenchPlan(
        tool_version="0",
        package_digest="0" * 64,
        engine="reference",
        target=NOTHING,
        arms=(Arm(name="plain", draft=None), Arm(name="drafted", draft=NOTHING)),
        workload=WorkloadRecord(name="w", digest=digest, requests=requests, skipped=()),
        output_tokens=TOKENS,
        concurrency=concurrency,
        repeats=repeats,
        warm_up=1,
        side_by_side=1,
        settings={},
        environment={"machine": "m"},
        steps=order(["plain", "drafted"], repeats),
    )


def row(**changes: Any) -> RequestRow:
    base = {
        "concurrency": 1, "request": "a", "input_tokens": 5, "output_tokens": TOKENS, "begin_ns": 0, "first_ns": 10, "last_ns": 20, "end_ns": 30, "first_tokens": 1, "events": 5,
        "verify_steps": 0, "accepted": 0, "drafted": 0, "histogram": (), "output_sha256": "0" * 64,
    }  # fmt: skip
    return RequestRow(**{**base, **changes})
