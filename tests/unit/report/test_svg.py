"""Charts: lengths follow the numbers, all of it lies inside the image, and nothing that is not a number is drawn."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.report.scale import PERCENT, axis, quantile, spread
from speculators_convert.report.svg import WIDTH, Bar, Line, bar_chart, clip, column_chart, line_chart, spread_chart

NOT_A_NUMBER, ENDLESS = math.nan, math.inf
sizes = st.floats(min_value=1e-6, max_value=1e9)
"""Seconds to tokens a second."""


def read(chart: str) -> ElementTree.Element:
    """The chart as XML; fails when it is not well-formed."""
    return ElementTree.fromstring(chart)  # noqa: S314


def numbers(node: ElementTree.Element, name: str) -> float:
    return float(node.attrib[name])


def rectangles(chart: str, kind: str = "one") -> list[ElementTree.Element]:
    return [node for node in read(chart).iter("rect") if node.attrib["class"] == kind]


def words(chart: str) -> list[str]:
    return [node.text or "" for node in read(chart).iter("text")]


@pytest.mark.parametrize(("largest", "top", "ticks"), [(0.9, 1.0, 6), (1.0, 1.0, 6), (1234.0, 1250.0, 6), (7.0, 8.0, 5), (0.003, 0.003, 4), (0.0, 1.0, 6)])
def test_an_axis_ends_at_a_round_number(largest: float, top: float, ticks: int) -> None:
    found = axis([0.0, largest])
    assert found.top == pytest.approx(top)
    assert len(found.ticks) == ticks


@given(st.lists(sizes, min_size=1, max_size=20))
def test_an_axis_holds_all_values_and_wastes_little(values: list[float]) -> None:
    found = axis(values)
    assert max(values) <= found.top * (1 + 1e-9)
    assert found.top <= max(values) * 1.5
    assert 3 <= len(found.ticks) <= 7
    assert found.ticks[-1] == pytest.approx(found.top)


def test_what_is_not_a_number_leaves_the_axis_alone() -> None:
    assert axis([NOT_A_NUMBER, ENDLESS, 4.0]).top == axis([4.0]).top
    assert axis([]).top == 1.0
    assert [axis([3.0], unit="ms").say(value) for value in (1234.5, 12345678.0, 1.23456, 0.0012)] == ["1,234 ms", "12,345,678 ms", "1.235 ms", "0.0012 ms"]


def test_columns_are_as_high_as_their_values() -> None:
    drawn = rectangles(column_chart([Bar("1", 0.8), Bar("2", 0.4), Bar("3", 0.0)], PERCENT, title="t"))
    heights = [numbers(node, "height") for node in drawn]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.02)
    assert heights[2] == 0
    assert [node.findtext("title") for node in drawn] == ["1: 80%", "2: 40%", "3: 0%"]
    bottoms = {round(numbers(node, "y") + numbers(node, "height"), 1) for node in drawn}
    assert len(bottoms) == 1


def test_many_columns_keep_their_labels_apart() -> None:
    few, many = (words(column_chart([Bar(str(at), 0.5) for at in range(1, count + 1)], PERCENT, title="t")) for count in (6, 64))
    assert {"1", "2", "6"} <= set(few)
    assert few.count("50%") == 7, "six values and one tick"
    assert many.count("50%") == 1, "the tick"
    assert 10 < sum(word.isdigit() for word in many) < 33


def test_bars_are_as_long_as_their_values_and_show_the_range() -> None:
    chart = bar_chart([Bar("plain", 100.0), Bar("drafted", 250.0, low=200.0, high=300.0)], axis([300.0], unit="tok/s"), title="t")
    plain, drafted = (numbers(node, "width") for node in rectangles(chart))
    assert drafted == pytest.approx(2.5 * plain, rel=1e-3)
    assert {"plain", "100 tok/s", "drafted", "250 tok/s (200 to 300)", "300 tok/s"} <= set(words(chart))
    whisker = [node for node in read(chart).iter("line") if node.attrib["class"] == "range"]
    assert len(whisker) == 3
    left, right = numbers(whisker[0], "x1"), numbers(whisker[0], "x2")
    assert (left - 1, right - 1) == (pytest.approx(plain * 2, abs=0.02), pytest.approx(plain * 3, abs=0.02))


def test_a_line_breaks_where_nothing_was_measured() -> None:
    chart = line_chart([Line("eager", (1.0, None, 3.0, 4.0))], ("1", "2", "4", "8"), axis([4.0]), title="t", below="requests at once")
    path = next(node.attrib["d"] for node in read(chart).iter("path") if node.attrib["d"].count("M") == 2)
    assert (path.count("M"), path.count("L")) == (2, 1)
    assert len(list(read(chart).iter("circle"))) == 4, "three values and the legend"
    assert {"eager", "1", "2", "4", "8", "requests at once"} <= set(words(chart))


def test_lines_differ_without_colour() -> None:
    chart = line_chart([Line(name, (1.0, 2.0)) for name in "abcd"], ("1", "2"), axis([2.0]), title="t")
    marks = [node.tag for node in read(chart).iter() if node.tag in ("circle", "rect", "polygon")]
    assert [marks.count(kind) for kind in ("circle", "rect", "polygon")] == [3, 3, 6]
    corners = {len(node.attrib["points"].split()) for node in read(chart).iter("polygon")}
    assert corners == {3, 4}


def test_a_quantile_is_a_sample() -> None:
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [quantile(samples, share) for share in (0, 0.2, 0.21, 0.5, 0.99, 1)] == [1.0, 1.0, 2.0, 3.0, 5.0, 5.0]
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


@given(st.lists(sizes, min_size=1, max_size=50), st.floats(min_value=0.01, max_value=1))
def test_at_least_the_share_lies_at_or_under_a_quantile(samples: list[float], share: float) -> None:
    found = quantile(samples, share)
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < share * len(samples)


def test_a_spread_has_its_numbers_in_order() -> None:
    item = spread("tpot", [float(at) for at in range(1, 101)])
    assert (item.low, item.quarter, item.median, item.three_quarters, item.tail, item.high) == (1, 25, 50, 75, 99, 100)
    chart = spread_chart([item], axis([100.0], unit="ms"), title="t")
    box, median = rectangles(chart, "box")[0], next(node for node in read(chart).iter("line") if node.attrib["class"] == "median")
    assert numbers(box, "x") < numbers(median, "x1") < numbers(box, "x") + numbers(box, "width")
    assert numbers(next(read(chart).iter("circle")), "cx") == pytest.approx(1 + 0.99 * (WIDTH - 2), abs=0.01)
    assert {"tpot", "median 50, p99 99 ms"} <= set(words(chart))


def test_what_is_not_a_number_is_not_drawn() -> None:
    bars = [Bar("a", NOT_A_NUMBER), Bar("b", ENDLESS, low=ENDLESS, high=1.0), Bar("c", 1.0, low=NOT_A_NUMBER, high=2.0)]
    charts = (
        column_chart(bars, PERCENT, title="t"),
        bar_chart(bars, axis([2.0]), title="t"),
        line_chart([Line("l", (NOT_A_NUMBER, 1.0, ENDLESS))], ("1", "2", "3"), axis([1.0]), title="t"),
        spread_chart([spread("s", [ENDLESS])], axis([1.0]), title="t"),
    )
    for chart in charts:
        assert "nan" not in chart
        assert "inf" not in chart
    assert len(rectangles(charts[0])) == len(rectangles(charts[1])) == 1
    assert not [node for node in read(charts[1]).iter("line") if node.attrib["class"] == "range"]


def test_nothing_to_draw_is_an_empty_chart() -> None:
    for chart in (column_chart([], PERCENT, title="t"), bar_chart([], axis([]), title="t"), line_chart([], (), axis([]), title="t"), spread_chart([], axis([]), title="t")):
        assert read(chart).attrib["role"] == "img"


@given(st.lists(st.tuples(st.text(max_size=60), sizes, sizes, sizes), min_size=1, max_size=12))
def test_all_of_a_chart_lies_inside_it(rows: list[tuple[str, float, float, float]]) -> None:
    bars = [Bar(label, value, min(low, high), max(low, high)) for label, value, low, high in rows]
    scale = axis([value for row in rows for value in row[1:]])
    lines = [Line(label, row) for label, *row in rows[:4]]  # type: ignore[arg-type]
    charts = (
        column_chart(bars, scale, title="t", below="b"),
        bar_chart(bars, scale, title="t"),
        line_chart(lines, ("1", "2", "4"), scale, title="t"),
        spread_chart([spread(label, values) for label, *values in rows], scale, title="t"),
    )
    for chart in charts:
        image = read(chart)
        width, height = numbers(image, "width"), numbers(image, "height")
        for node in image.iter():
            places = [(name, float(value)) for name, value in node.attrib.items() if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy")]
            assert all(-0.01 <= place <= (width if "x" in name else height) + 0.01 for name, place in places), (node.tag, places)
            if node.tag == "rect":
                assert numbers(node, "x") + numbers(node, "width") <= width + 1.5


def test_a_hostile_label_stays_a_label() -> None:
    label = "</text><script>1</script>\u202e\x00"
    for chart in (
        column_chart([Bar(label, 1)], PERCENT, title=label),
        bar_chart([Bar(label, 1)], PERCENT, title=label),
        line_chart([Line(label, (1,))], (label,), PERCENT, title=label),
    ):
        assert {node.tag for node in read(chart).iter()} <= {"svg", "g", "rect", "line", "text", "title", "path", "circle"}
        assert read(chart).attrib["aria-label"] == "</text><script>1</script>\\u202e\\u0000"


def test_a_long_label_is_cut() -> None:
    assert clip("abc", 100) == "abc"
    assert clip("a" * 50, 70) == "a" * 9 + "\u2026"
