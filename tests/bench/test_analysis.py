"""Numbers of a summary, worked out by hand."""

from __future__ import annotations

import pytest

from bench_rows import plan_of, row
from speculators_convert.bench import analysis, rows
from speculators_convert.bench.plan import order
from speculators_convert.results.bench import BenchReport, RequestRow

MS = 1_000_000


def times(begin: int, first: int, last: int, end: int, **changes: object) -> RequestRow:
    return row(begin_ns=begin * MS, first_ns=first * MS, last_ns=last * MS, end_ns=end * MS, **changes)


def test_each_measure_by_hand() -> None:
    """Two requests of 11 tokens, the second beginning 10 ms later: 22 tokens in 120 ms."""
    found = [times(0, 20, 100, 101, first_tokens=1), times(10, 15, 114, 120, first_tokens=2)]
    assert analysis.throughput(found) == 22 / 0.120
    assert analysis.end_to_end(found) == [101.0, 110.0]
    assert analysis.time_to_first_token(found) == [5.0, 20.0]
    assert analysis.time_per_output_token(found) == [80 / 10, 99 / 9]


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.0), (51, 3.0), (99, 4.0), (100, 4.0)])
def test_percentiles_are_observed_values(percent: int, expected: float) -> None:
    assert analysis.percentile([1.0, 2.0, 3.0, 4.0], percent) == expected


def test_a_hundredth_value_is_not_the_99th_percentile() -> None:
    assert analysis.percentile([float(value) for value in range(1, 101)], 99) == 99.0


def report(*spans: tuple[int, int], repeats: int = 2) -> BenchReport:
    """Of one request in each phase that takes so many milliseconds: plain and drafted for each repeat."""
    plan = plan_of(repeats=repeats)
    by_repeat = {(step.repeat, step.arm): step.index for step in plan.steps}
    found = {}
    for repeat, (plain, drafted) in enumerate(spans):
        found[by_repeat[repeat, "plain"]] = [times(0, 10, plain - 1, plain)]
        found[by_repeat[repeat, "drafted"]] = [times(0, 10, drafted - 1, drafted, verify_steps=4, accepted=6, drafted=12, histogram=(1, 0, 3))]
    return analysis.report(plan, found, ["" for _ in plan.steps])


def changes(found: BenchReport) -> dict[str, tuple[str, float, float, float]]:
    return {change.metric: (change.verdict, change.low, change.median, change.high) for change in found.results[0].changes}


def test_ratios_are_paired_within_a_repeat() -> None:
    found = changes(report((100, 50), (200, 160)))
    assert found["throughput"] == ("better", 1.25, (1.25 + 2.0) / 2, 2.0)
    assert found["end to end p99"] == ("better", 0.5, (0.5 + 0.8) / 2, 0.8)
    assert found["time to first token p50"] == ("unclear", 1.0, 1.0, 1.0)


def test_a_loss_is_said_as_plainly_as_a_gain() -> None:
    found = report((100, 125), (100, 160))
    assert changes(found)["throughput"][0] == "worse"
    assert any(line.startswith("concurrency 1, drafted: end to end p99 is 1.425 times that of the target alone (1.250 to 1.600)") for line in found.regressions)


def test_repeats_that_disagree_say_nothing_and_one_repeat_never_does() -> None:
    assert changes(report((100, 50), (100, 150)))["throughput"][0] == "unclear"
    assert changes(report((100, 50), repeats=1))["throughput"][0] == "unclear"


def test_acceptance_is_summed_from_raw_counters() -> None:
    plain, drafted = report((100, 50), (100, 50)).results[0].arms
    assert plain.acceptance is None
    assert drafted.acceptance is not None
    assert (drafted.acceptance.verify_steps, drafted.acceptance.accepted, drafted.acceptance.drafted) == (8, 12, 24)
    assert (plain.steps, plain.events, drafted.steps, drafted.events) == (22, 10, 10, 10)
    assert (plain.step_ms, drafted.step_ms) == (89 / 10, 39 / 4)
    assert (drafted.acceptance.length, drafted.acceptance.rate, drafted.acceptance.histogram) == (2.5, 0.5, (2, 0, 6))


def test_the_order_turns_round_with_each_repeat() -> None:
    assert [step.arm for step in order(["A", "B"], 3)] == ["A", "B", "B", "A", "A", "B"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_tokens": 10}, "gave 10 output tokens, expected exactly 11"),
        ({"first_ns": 0}, "times out of order"),
        ({"last_ns": 10}, "times out of order"),
        ({"first_tokens": 11}, "11 of 11 tokens in its first event"),
        ({"verify_steps": 3}, "3 verify steps; the server has no draft"),
        ({"accepted": 1}, "accepted 1 of 0 drafted tokens"),
        ({"request": "b"}, None),
    ],
)
def test_rows_that_do_not_count_are_named(change: dict[str, object], message: str | None) -> None:
    plan = plan_of()
    found = list(rows.problems(plan, plan.steps[0], [row(**change)]))
    assert found == [] if message is None else message in found[0]


def test_a_phase_must_be_whole() -> None:
    plan = plan_of(requests=2)
    assert "concurrency 1 has 1 rows of 1 requests, expected 2" in list(rows.problems(plan, plan.steps[0], [row()]))
    assert "concurrency 1 has 2 rows of 1 requests, expected 2" in list(rows.problems(plan, plan.steps[0], [row(), row()]))
