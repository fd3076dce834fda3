"""Charts of a performance run: the page's and the picture's show the numbers of the summary, and a chart that does not is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.bench.drawn import TIMES, check_page, check_picture, coloured, pixels
from tests.bench.recorded_runs import summary

from speculators_convert.report import bench_png, svg
from speculators_convert.report.bench_html import render_bench
from speculators_convert.report.bench_png import write_png
from speculators_convert.report.html import Markup
from speculators_convert.results.bench import BenchReport

PAIRS = ("trained", "synthetic")
BARS, SPREADS = svg.bar_chart, svg.spread_chart


@pytest.mark.parametrize("pair", PAIRS)
def test_charts_of_the_page_show_the_summary(pair: str) -> None:
    check_page(render_bench(summary(pair)), summary(pair))


def empty(*_: Any, title: str) -> Markup:
    return svg.drawing(svg.WIDTH, 100, title)


def turned(chart: Callable[..., Markup]) -> Callable[..., Markup]:
    """The last arm's values first, under the names as they were."""

    def draw(rows: Any, scale: svg.Axis, *, title: str) -> Markup:
        return chart([replace(values, label=row.label) for row, values in zip(rows, reversed(rows), strict=True)], scale, title=title)

    return draw


def shorter(chart: Callable[..., Markup]) -> Callable[..., Markup]:
    """Without the last arm."""
    return lambda rows, scale, *, title: chart(rows[:-1], scale, title=title)


def stretched(chart: Callable[..., Markup]) -> Callable[..., Markup]:
    """All drawn a tenth too long; written as it is."""
    return lambda rows, scale, *, title: chart(rows, replace(scale, top=scale.top / 1.1, ticks=scale.ticks), title=title)


def moved(_: Callable[..., Markup]) -> Callable[..., Markup]:
    """One mark of the chart elsewhere."""

    def draw(rows: Any, scale: svg.Axis, *, title: str) -> Markup:
        if isinstance(rows[0], svg.Spread):
            return SPREADS([replace(rows[0], tail=rows[0].median), *rows[1:]], scale, title=title)
        return BARS([replace(rows[0], low=rows[0].value), *rows[1:]], scale, title=title)

    return draw


@pytest.mark.parametrize("name", ["bar_chart", "spread_chart"])
@pytest.mark.parametrize("spoil", [lambda _: empty, turned, shorter, stretched, moved], ids=["empty", "turned", "shorter", "stretched", "moved"])
def test_a_chart_that_shows_something_else_is_seen(name: str, spoil: Callable[[Callable[..., Markup]], Callable[..., Markup]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, name, spoil(getattr(svg, name)))
    with pytest.raises((AssertionError, ValueError)):
        check_page(render_bench(summary("trained")), summary("trained"))


def changed(report: BenchReport, at: int, arm: int, **values: Any) -> BenchReport:
    """The report with one arm of one concurrency changed."""
    result = report.results[at]
    arms = [item.model_copy(update=values) if place == arm else item for place, item in enumerate(result.arms)]
    results = [result.model_copy(update={"arms": tuple(arms)}) if place == at else item for place, item in enumerate(report.results)]
    return report.model_copy(update={"results": tuple(results)})


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[BenchReport], tuple[Any, Any, list[Any]]]:
    """The figure behind a picture, the picture's pixels, and those of each panel."""
    figure_type = pytest.importorskip("matplotlib.figure").Figure
    save, kept = figure_type.savefig, []

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        kept.append(self)
        save(self, *arguments, **options)

    def drawn(report: BenchReport) -> tuple[Any, Any, list[Any]]:
        write_png(report, tmp_path / "picture.png")
        picture, panels = pixels(tmp_path / "picture.png"), []
        for axis in kept[-1].axes:
            box = axis.get_window_extent()
            panels.append(picture[picture.shape[0] - int(box.y1) : picture.shape[0] - int(box.y0), int(box.x0) : int(box.x1)])
        return kept[-1], picture, panels

    monkeypatch.setattr(figure_type, "savefig", keep)
    return drawn


@pytest.mark.parametrize("pair", PAIRS)
def test_the_picture_shows_the_summary(draw: Callable[[BenchReport], tuple[Any, Any, list[Any]]], pair: str) -> None:
    report = summary(pair)
    axes = iter(draw(report)[0].axes)
    for result in report.results:
        axis, names = next(axes), [arm.arm for arm in result.arms]
        assert [label.get_text() for label in axis.get_yticklabels()] == names
        assert [bar.get_x() for bar in axis.patches] == [0] * len(names)
        assert [bar.get_width() for bar in axis.patches] == [median(arm.throughput) for arm in result.arms]
        assert [tuple(line.get_xdata()) for line in axis.lines] == [arm.throughput for arm in result.arms]
        assert [set(line.get_ydata()) for line in axis.lines] == [{place} for place in range(len(names))]
        assert f"concurrency {result.concurrency}" in axis.get_title()
        for name, times in TIMES.items():
            axis = next(axes)
            assert axis.get_title().startswith(f"{name}, ms")
            assert [label.get_text() for label in axis.get_legend().get_texts()] == names
            curves, crosses = axis.lines[0::2], axis.lines[1::2]
            for arm, curve, cross in zip(result.arms, curves, crosses, strict=True):
                assert tuple(curve.get_xdata()) == times(arm).curve
                assert list(curve.get_ydata()) == [percent / 100 for percent in range(0, 101, 5)]
                assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([times(arm).p99], [0.99])
                assert curve.get_label() == arm.arm
                assert curve.get_color() == cross.get_color()
    assert list(axes) == []


def test_bars_of_the_picture_end_at_the_median(draw: Callable[[BenchReport], tuple[Any, Any, list[Any]]]) -> None:
    """Pixels a little before and behind the end, beside the dots."""
    report = summary("trained")
    figure, picture, _ = draw(report)
    for result, axis in zip(report.results, figure.axes[:: 1 + len(TIMES)], strict=True):
        for place, arm in enumerate(result.arms):
            across, up = axis.transData.transform((median(arm.throughput), place + 0.3))
            before, behind = (picture[int(picture.shape[0] - up), int(across) + step] for step in (-4, 4))
            assert tuple(behind) == (1, 1, 1)
            assert tuple(before) != (1, 1, 1)


def test_a_picture_of_other_numbers_has_other_pixels(draw: Callable[[BenchReport], tuple[Any, Any, list[Any]]]) -> None:
    """In the panels of these numbers, and in no other."""
    report = summary("trained")
    _, _, panels = draw(report)
    for at, arm in ((0, 1), (1, 3)):
        item = report.results[at].arms[arm]
        slower = (min(item.throughput) * 0.8, *sorted(item.throughput)[1:])
        curve = (*item.end_to_end.curve[:10], item.end_to_end.curve[9], *item.end_to_end.curve[11:])
        _, _, found = draw(changed(report, at, arm, throughput=slower, end_to_end=item.end_to_end.model_copy(update={"curve": curve})))
        assert _different(panels, found) == [4 * at, 4 * at + 1]


def _different(panels: list[Any], others: list[Any]) -> list[int]:
    return [place for place, (one, other) in enumerate(zip(panels, others, strict=True)) if (one != other).any()]


@pytest.mark.parametrize("pair", PAIRS)
def test_each_panel_of_the_picture_shows_each_arm(draw: Callable[[BenchReport], tuple[Any, Any, list[Any]]], pair: str, tmp_path: Path) -> None:
    figure, _, panels = draw(summary(pair))
    check_picture(tmp_path / "picture.png", summary(pair))
    to_rgb = pytest.importorskip("matplotlib.colors").to_rgb
    for axis, area in zip(figure.axes, panels, strict=True):
        for line in axis.lines:
            assert coloured(area, to_rgb(line.get_color())) >= 20


def nothing(*_: Any) -> None:
    """Draws nothing."""


@pytest.mark.parametrize(("part", "panel"), [("_throughput", 0), ("_curves", 1)])
def test_an_empty_panel_is_seen(part: str, panel: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(bench_png, part, nothing)
    write_png(summary("trained"), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(AssertionError, match=f"panel {panel}"):
        check_picture(tmp_path / "picture.png", summary("trained"))


def test_an_arm_that_is_missing_in_the_picture_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = summary("trained")
    fewer = report.model_copy(update={"results": tuple(result.model_copy(update={"arms": result.arms[:-1]}) for result in report.results)})
    write_png(fewer, tmp_path / "picture.png")
    with pytest.raises(AssertionError, match="panel 0"):
        check_picture(tmp_path / "picture.png", report)
