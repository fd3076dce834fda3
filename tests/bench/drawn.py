"""What is really drawn of a performance run: the charts of its page read back as numbers, and the picture as pixels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

from speculators_convert.results.bench import ArmResult, BenchReport, ConcurrencyResult, Distribution

TIMES: dict[str, Callable[[ArmResult], Distribution]] = {
    "End to end": lambda arm: arm.end_to_end,
    "Time to first token": lambda arm: arm.time_to_first_token,
    "Time per output token": lambda arm: arm.time_per_output_token,
}
NEAR = 0.02
"""Charts write coordinates with two decimals."""
_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def check_page(page: str, report: BenchReport) -> None:
    """Each chart is there, and its marks lie where the summary's numbers are."""
    found = {chart.attrib["aria-label"]: chart for chart in map(ElementTree.fromstring, _SVG.findall(page))}
    expected = [f"{name} at concurrency {result.concurrency}" for result in report.results for name in ("Output tokens per second", *TIMES)]
    assert list(found) == expected
    for result in report.results:
        _check_throughput(found[f"Output tokens per second at concurrency {result.concurrency}"], result)
        for name, times in TIMES.items():
            _check_times(found[f"{name} at concurrency {result.concurrency}"], [(arm.arm, times(arm)) for arm in result.arms])


def _check_throughput(chart: ElementTree.Element, result: ConcurrencyResult) -> None:
    """A bar from zero to the median over repeats; a whisker from the least to the largest."""
    at, bars, whiskers = _scale(chart, "tok/s"), _nodes(chart, "rect", "one"), _whiskers(chart)
    assert len(bars) == len(whiskers) == len(result.arms)
    for bar, whisker, arm, words in zip(bars, whiskers, result.arms, _rows(chart, bars, [arm.arm for arm in result.arms]), strict=True):
        numbers = (median(arm.throughput), min(arm.throughput), max(arm.throughput))
        _same(_ends(bar), [at(0), at(numbers[0])])
        _same(whisker, [at(value) for value in numbers[1:]])
        _says(words, *numbers)


def _check_times(chart: ElementTree.Element, arms: list[tuple[str, Distribution]]) -> None:
    """A whisker over all requests, a box over the middle half, a line at the median, a dot at the 99th percentile."""
    at, boxes, whiskers = _scale(chart, "ms"), _nodes(chart, "rect", "box"), _whiskers(chart)
    middles, dots = _nodes(chart, "line", "median"), _nodes(chart, "circle", "two")
    assert len(boxes) == len(whiskers) == len(middles) == len(dots) == len(arms)
    rows = _rows(chart, boxes, [name for name, _ in arms])
    for box, whisker, middle, dot, (_, item), words in zip(boxes, whiskers, middles, dots, arms, rows, strict=True):
        percent = dict(zip(range(0, 101, 5), item.curve, strict=True))
        left, right = _ends(box)
        _same([left, right], [at(percent[25]), max(at(percent[75]), at(percent[25]) + 1)])
        _same(whisker, [at(percent[0]), at(percent[100])])
        _same([_number(middle, "x1"), _number(middle, "x2"), _number(dot, "cx")], [at(item.p50), at(item.p50), at(item.p99)])
        _says(words, item.p50, item.p99)


def _scale(chart: ElementTree.Element, unit: str) -> Callable[[float], float]:
    """From a value to its place, by the chart's own first and last tick: zero, and the number written with the unit."""
    ticks = [_number(line, "x1") for kind in ("base", "grid") for line in _nodes(chart, "line", kind)]
    (last,) = [node for node in _nodes(chart, "text", "soft end") if (node.text or "").endswith(f" {unit}")]
    first, end, top = min(ticks), max(ticks), _numbers(last.text or "")[0]
    assert _number(last, "x") == end
    assert 0 <= first < 10
    assert end > 300
    return lambda value: first + value / top * (end - first)


def _rows(chart: ElementTree.Element, bodies: list[ElementTree.Element], names: list[str]) -> list[str]:
    """What is written over each body: its arm's name, cut where there is no room, and its numbers."""
    written = [node for kind in ("over", "over end") for node in _nodes(chart, "text", kind)]
    found = []
    for body, name in zip(bodies, names, strict=True):
        label, value = [node.text or "" for node in written if 0 < _number(body, "y") - _number(node, "y") < 20]
        assert label == name or (len(label) > 1 and label.endswith("\N{HORIZONTAL ELLIPSIS}") and name.startswith(label[:-1]))
        found.append(value)
    return found


def _whiskers(chart: ElementTree.Element) -> list[list[float]]:
    """Left and right end of the lying lines of the ranges."""
    return [[_number(line, "x1"), _number(line, "x2")] for line in _nodes(chart, "line", "range") if line.attrib["y1"] == line.attrib["y2"]]


def _nodes(chart: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    return [node for node in chart.iter(tag) if node.attrib.get("class") == kind]


def _number(node: ElementTree.Element, name: str) -> float:
    return float(node.attrib[name])


def _ends(node: ElementTree.Element) -> list[float]:
    return [_number(node, "x"), _number(node, "x") + _number(node, "width")]


def _numbers(words: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(words)]


def _same(found: list[float], expected: list[float]) -> None:
    assert all(abs(one - other) <= NEAR for one, other in zip(found, expected, strict=True)), (found, expected)


def _says(words: str, *values: float) -> None:
    """The numbers, to four digits."""
    found = _numbers(words.replace("p99", ""))
    assert len(found) == len(values), words
    assert all(abs(one - other) <= 6e-4 * other for one, other in zip(found, values, strict=True)), (words, values)


def pixels(path: Path) -> Any:
    """The picture's pixels as rows of red, green and blue between 0 and 1."""
    from matplotlib.image import imread  # noqa: PLC0415

    return imread(path)[:, :, :3]


def coloured(area: Any, colour: Any) -> int:
    """How many pixels have a colour."""
    return int((abs(area - colour).max(axis=2) < 0.02).sum())


def cells(picture: Any, report: BenchReport) -> Iterator[Any]:
    """The picture cut evenly: a row for each concurrency, a column for throughput and for each of the times."""
    height, width = picture.shape[0] / len(report.results), picture.shape[1] / (1 + len(TIMES))
    for row in range(len(report.results)):
        for column in range(1 + len(TIMES)):
            yield picture[int(row * height) : int((row + 1) * height), int(column * width) : int((column + 1) * width)]


def check_picture(path: Path, report: BenchReport) -> None:
    """Each panel has something in the colour of each arm."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415

    from speculators_convert.report import bench_png  # noqa: PLC0415

    colours = [to_rgb(colour) for colour in bench_png._COLOURS[: len(report.plan.arms)]]
    assert len(set(colours)) == len(report.plan.arms)
    for number, area in enumerate(cells(pixels(path), report)):
        assert [coloured(area, colour) >= 20 for colour in colours] == [True] * len(colours), f"panel {number}"
