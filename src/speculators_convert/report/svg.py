"""Charts as inline SVG: pure functions from numbers to markup. A page that uses them adds `STYLE`; colours come from the page's own style.

Each chart has a `title`, which is its accessible name; the numbers themselves stand in a table beside it. Charts are `WIDTH` wide, so
that their text keeps its size on a phone. A value that is not finite is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from speculators_convert.report.html import Markup, element, join
from speculators_convert.report.scale import PERCENT, Axis, Spread, axis, quantile, spread

__all__ = ["PERCENT", "STYLE", "WIDTH", "Axis", "Bar", "Line", "Spread", "axis", "bar_chart", "clip", "column_chart", "drawing", "line_chart", "quantile", "spread", "spread_chart"]

WIDTH = 358
"""User units, at most one CSS pixel each: a 390 pixel screen less its margins."""
_ROW = 44
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 6, 18, 38
_HEIGHT = 220
_SERIES = ("one", "two", "three", "four")
_GLYPH = 7.0
"""Upper bound of a character's width at 12 pixels."""
STYLE = """
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
svg .soft{fill:var(--soft)}svg .middle{text-anchor:middle}svg .end{text-anchor:end}
svg .over{paint-order:stroke;stroke:var(--page);stroke-width:4px;stroke-linejoin:round}
svg .grid{stroke:var(--rule)}svg .base{stroke:var(--soft)}svg .range{stroke:var(--ink);stroke-width:1.5}
svg .one{fill:var(--one)}svg .two{fill:var(--two)}svg .three{fill:var(--three)}svg .four{fill:var(--four)}
svg path{fill:none;stroke-width:2}
svg path.one{fill:none;stroke:var(--one)}svg path.two{fill:none;stroke:var(--two);stroke-dasharray:7 3}
svg path.three{fill:none;stroke:var(--three);stroke-dasharray:2 3}svg path.four{fill:none;stroke:var(--four);stroke-dasharray:9 3 2 3}
svg .box{fill:var(--fill);stroke:var(--one);stroke-width:1.5}svg .median{stroke:var(--ink);stroke-width:2.5}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its name and, when it was measured more than once, the range of the measurements."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Values over the labels of a line chart; None where nothing was measured."""

    name: str
    values: tuple[float | None, ...]


def column_chart(bars: Sequence[Bar], scale: Axis, *, title: str, below: str = "") -> Markup:
    """Upright bars side by side, for ordered steps such as draft positions; `below` names them."""
    pitch = (WIDTH - _LEFT - _RIGHT) / max(len(bars), 1)
    widest = max((len(scale.write(bar.value)) for bar in bars if math.isfinite(bar.value)), default=0)
    written = widest * _GLYPH <= pitch
    every = max(math.ceil(max((len(bar.label) for bar in bars), default=0) * _GLYPH / pitch), 1)
    drawn = (_column(bar, at, pitch, scale, written=written, labelled=at % every == 0) for at, bar in enumerate(bars))
    return _chart(_HEIGHT, title, _horizontal_grid(scale), *drawn, _below(below))


def line_chart(lines: Sequence[Line], labels: Sequence[str], scale: Axis, *, title: str, below: str = "") -> Markup:
    """Values over evenly spaced labels, up to four lines; each differs in colour, dash and mark, and is named above the chart."""
    legend = join(_legend(line, at) for at, line in enumerate(lines))
    top = _TOP + 18 * len(lines)
    inner = join((_horizontal_grid(scale), *(_line(line, at, len(labels), scale) for at, line in enumerate(lines)), _under(labels), _below(below)))
    return _chart(_HEIGHT + top - _TOP, title, legend, element("g", inner, transform=f"translate(0 {top - _TOP})"))


def bar_chart(bars: Sequence[Bar], scale: Axis, *, title: str) -> Markup:
    """Lying bars under their names, with the range of the measurements as a whisker; for throughput and the like."""
    return _chart(_rows_height(bars), title, _vertical_grid(scale, len(bars)), *(_bar(bar, at, scale) for at, bar in enumerate(bars)))


def spread_chart(spreads: Sequence[Spread], scale: Axis, *, title: str) -> Markup:
    """Distributions under their names: range, box from quarter to three quarters, median, and a dot at the 99th percentile; for latency."""
    return _chart(_rows_height(spreads), title, _vertical_grid(scale, len(spreads)), *(_spread(item, at, scale) for at, item in enumerate(spreads)))


def clip(label: str, width: float) -> str:
    """`label`, cut to what surely fits into `width`."""
    most = max(int(width / _GLYPH), 1)
    return label if len(label) <= most else label[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def drawing(width: float, height: float, title: str, *parts: Markup) -> Markup:
    """An image with an accessible name."""
    return element("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", width=width, height=height, role="img", aria_label=title)


def _chart(height: float, title: str, *parts: Markup) -> Markup:
    return drawing(WIDTH, height, title, *parts)


def _x(scale: Axis, value: float) -> float:
    """Abscissa of a value in a chart of lying bars."""
    return 1 + scale.share(value) * (WIDTH - 2)


def _y(scale: Axis, value: float) -> float:
    """Ordinate of a value in a chart of upright bars or lines."""
    return _HEIGHT - _BOTTOM - scale.share(value) * (_HEIGHT - _BOTTOM - _TOP)


def _rows_height(rows: Sequence[object]) -> float:
    return _ROW * len(rows) + 22


def _horizontal_grid(scale: Axis) -> Markup:
    ticks = ((tick, _y(scale, tick)) for tick in scale.ticks)
    return join(
        join(
            (
                element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid" if tick else "base"),
                element("text", clip(scale.write(tick), _LEFT), x=_LEFT - 6, y=y + 4, class_="soft end"),
            )
        )
        for tick, y in ticks
    )


def _vertical_grid(scale: Axis, rows: int) -> Markup:
    """Ticks under lying bars. The last one is written, and of the others as many as have room."""
    height, last, parts = _ROW * rows, len(scale.ticks) - 1, []
    widest = max(len(scale.say(scale.top)), *(len(scale.write(tick)) for tick in scale.ticks)) * _GLYPH
    every = max(math.ceil(1.5 * widest * last / WIDTH), 1)
    for at, tick in enumerate(scale.ticks):
        x = _x(scale, tick)
        parts.append(element("line", x1=x, x2=x, y1=0, y2=height, class_="grid" if tick else "base"))
        if (last - at) % every == 0:
            parts.append(
                element("text", scale.say(tick) if at == last else scale.write(tick), x=x, y=height + 16, class_="soft end" if at == last else "soft middle" if at else "soft")
            )
    return join(parts)


def _column(bar: Bar, at: int, pitch: float, scale: Axis, *, written: bool, labelled: bool) -> Markup:
    middle = _LEFT + pitch * (at + 0.5)
    label = element("text", clip(bar.label, max(pitch, 40)), x=middle, y=_HEIGHT - _BOTTOM + 16, class_="soft middle") if labelled else Markup()
    if not math.isfinite(bar.value):
        return label
    y, width = _y(scale, bar.value), min(pitch * 0.72, 44)
    tip = element("title", f"{bar.label}: {scale.say(bar.value)}")
    column = element("rect", tip, x=middle - width / 2, y=y, width=width, height=_HEIGHT - _BOTTOM - y, class_="one")
    value = element("text", scale.write(bar.value), x=middle, y=y - 5, class_="middle") if written else Markup()
    return join((column, value, label))


def _below(words: str) -> Markup:
    return element("text", words, x=_LEFT + (WIDTH - _LEFT - _RIGHT) / 2, y=_HEIGHT - 4, class_="soft middle") if words else Markup()


def _under(labels: Sequence[str]) -> Markup:
    pitch = (WIDTH - _LEFT - _RIGHT) / max(len(labels), 1)
    every = max(math.ceil(max((len(label) for label in labels), default=0) * _GLYPH / pitch), 1)
    return join(
        element("text", clip(label, max(pitch * every, 40)), x=_LEFT + pitch * (at + 0.5), y=_HEIGHT - _BOTTOM + 16, class_="soft middle")
        for at, label in enumerate(labels)
        if at % every == 0
    )


def _legend(line: Line, at: int) -> Markup:
    y, kind = 12 + 18 * at, _SERIES[at % len(_SERIES)]
    return join((element("path", d=f"M2 {y - 4}h34", class_=kind), _mark(at, 19, y - 4, ""), element("text", clip(line.name, WIDTH - 44), x=44, y=y)))


def _line(line: Line, at: int, count: int, scale: Axis) -> Markup:
    """The line, broken where a value is missing, and a mark at each value."""
    pitch = (WIDTH - _LEFT - _RIGHT) / max(count, 1)
    points = [(_LEFT + pitch * (place + 0.5), _y(scale, value), value) if value is not None and math.isfinite(value) else None for place, value in enumerate(line.values[:count])]
    steps = "".join(f"{'L' if place and points[place - 1] else 'M'}{point[0]:.1f} {point[1]:.1f}" for place, point in enumerate(points) if point)
    marks = (_mark(at, point[0], point[1], f"{line.name}: {scale.say(point[2])}") for point in points if point)
    return join((element("path", d=steps, class_=_SERIES[at % len(_SERIES)]) if steps else Markup(), *marks))


def _mark(at: int, x: float, y: float, tip: str) -> Markup:
    """Disc, square, diamond or triangle, so that lines differ without colour too."""
    kind, inside = _SERIES[at % len(_SERIES)], element("title", tip) if tip else Markup()
    if kind == "one":
        return element("circle", inside, cx=x, cy=y, r=4, class_=kind)
    if kind == "two":
        return element("rect", inside, x=x - 3.5, y=y - 3.5, width=7, height=7, class_=kind)
    corners = ((0, -5), (5, 0), (0, 5), (-5, 0)) if kind == "three" else ((0, -5), (5, 4), (-5, 4))
    return element("polygon", inside, points=" ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners), class_=kind)


def _named(label: str, value: str, y: float) -> Markup:
    """The name of a row at the left and its value at the right, over the row."""
    shown = element("text", value, x=WIDTH - 1, y=y + 14, class_="over end")
    return join((element("text", clip(label, WIDTH - 8 - len(value) * _GLYPH), x=2, y=y + 14, class_="over"), shown))


def _bar(bar: Bar, at: int, scale: Axis) -> Markup:
    y = _ROW * at
    if not math.isfinite(bar.value):
        return _named(bar.label, "", y)
    low, high = (value if value is not None and math.isfinite(value) else None for value in (bar.low, bar.high))
    ranged = low is not None and high is not None
    written = scale.say(bar.value) + (f" ({scale.write(low)} to {scale.write(high)})" if low is not None and high is not None else "")
    body = element("rect", element("title", f"{bar.label}: {written}"), x=1, y=y + 20, width=max(_x(scale, bar.value) - 1, 0), height=14, class_="one")
    whisker = _whisker(_x(scale, low or 0), _x(scale, high or 0), y + 27) if ranged else Markup()
    return join((_named(bar.label, written, y), body, whisker))


def _whisker(left: float, right: float, y: float) -> Markup:
    ends = (element("line", x1=x, x2=x, y1=y - 5, y2=y + 5, class_="range") for x in (left, right))
    return join((element("line", x1=left, x2=right, y1=y, y2=y, class_="range"), *ends))


def _spread(item: Spread, at: int, scale: Axis) -> Markup:
    numbers = (item.low, item.quarter, item.median, item.three_quarters, item.tail, item.high)
    y = _ROW * at
    if not all(math.isfinite(value) for value in numbers):
        return _named(item.label, "", y)
    low, quarter, median, three_quarters, tail, high = (_x(scale, value) for value in numbers)
    tip = element("title", f"{item.label}: {scale.write(item.low)} to {scale.say(item.high)}")
    box = element("rect", tip, x=quarter, y=y + 20, width=max(three_quarters - quarter, 1), height=14, class_="box")
    parts = (
        _whisker(low, high, y + 27),
        box,
        element("line", x1=median, x2=median, y1=y + 18, y2=y + 36, class_="median"),
        element("circle", cx=tail, cy=y + 27, r=3.5, class_="two"),
    )
    return join((_named(item.label, f"median {scale.write(item.median)}, p99 {scale.say(item.tail)}", y), *parts))
