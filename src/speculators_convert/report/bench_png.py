"""The picture of a performance run: throughput and latency distributions of each arm, as PNG. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speculators_convert.errors import UsageError, WriteError
from speculators_convert.report.bench_html import TIMES
from speculators_convert.results.bench import BenchReport, ConcurrencyResult

_COLOURS = ("#565e68", "#1f5fa8", "#a8500f", "#17693a", "#7b3fa0")
_WIDTH, _HEIGHT, _DPI = 4.2, 3.2, 130


def write_png(report: BenchReport, path: Path) -> None:
    """One row of panels for each concurrency. `UsageError` without matplotlib, `WriteError` when the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("the picture needs matplotlib", where="--png", hint='pip install "speculators-convert[bench]"') from error
    panels, rows = 1 + len(TIMES), len(report.results)
    figure = Figure(figsize=(_WIDTH * panels, _HEIGHT * rows + 0.6), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, panels, squeeze=False)
    for row, result in zip(axes, report.results, strict=True):
        _throughput(row[0], result)
        for axis, (name, times) in zip(row[1:], TIMES, strict=True):
            _curves(axis, name, [(arm.arm, times(arm).curve, times(arm).p99) for arm in result.arms])
    figure.suptitle(f"{report.plan.workload.name}, {report.plan.output_tokens} output tokens, {report.plan.repeats} repeats")
    try:
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise WriteError(f"cannot write the picture ({error.strerror})", where=str(path), hint="name a file in a folder that exists and that you may write to") from error


def _throughput(axis: Any, result: ConcurrencyResult) -> None:
    """A bar at the median, a dot for each repeat."""
    for place, arm in enumerate(result.arms):
        axis.barh(place, arm.throughput_median, color=_COLOURS[place % len(_COLOURS)], alpha=0.35)
        axis.plot(arm.throughput, [place] * len(arm.throughput), "o", color=_COLOURS[place % len(_COLOURS)], markersize=4)
    axis.set_yticks(range(len(result.arms)), [arm.arm for arm in result.arms])
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_title(f"concurrency {result.concurrency}: output tokens per second", fontsize=9)


def _curves(axis: Any, name: str, arms: list[tuple[str, tuple[float, ...], float]]) -> None:
    """Share of requests that took no longer; a cross at the 99th percentile."""
    for place, (label, curve, p99) in enumerate(arms):
        colour = _COLOURS[place % len(_COLOURS)]
        axis.step(curve, [at / (len(curve) - 1) for at in range(len(curve))], where="post", color=colour, label=label, linewidth=1.5)
        axis.plot([p99], [0.99], "x", color=colour)
    axis.set_ylim(0, 1.02)
    axis.set_xlim(left=0)
    axis.set_title(f"{name}, ms: share of requests (cross: p99)", fontsize=9)
    axis.legend(fontsize=8, loc="lower right")
    axis.grid(alpha=0.3)
