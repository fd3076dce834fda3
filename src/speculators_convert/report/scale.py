"""Numbers before they are drawn: value axes with round ends, and distributions in six numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A value axis from 0 to `top`, how it writes a number, and the unit of its numbers."""

    top: float
    ticks: tuple[float, ...]
    write: Callable[[float], str]
    unit: str = ""

    def say(self, value: float) -> str:
        """A number with its unit."""
        return f"{self.write(value)} {self.unit}".rstrip()

    def share(self, value: float) -> float:
        """Where `value` lies between 0 and 1; what leaves the axis ends at its edge."""
        return min(max(value / self.top, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in six numbers."""

    label: str
    low: float
    quarter: float
    median: float
    three_quarters: float
    tail: float
    high: float


PERCENT = Axis(top=1.0, ticks=(0.0, 0.25, 0.5, 0.75, 1.0), write=lambda value: f"{value:.0%}")


def axis(values: Iterable[float], *, unit: str = "") -> Axis:
    """An axis from 0 to a round number at or over the largest of `values`, with four to six ticks."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    largest = largest if largest > 0 else 1.0
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if largest <= factor * power * 5)
    count = math.ceil(largest / step - 1e-9)
    return Axis(top=count * step, ticks=tuple(step * at for at in range(count + 1)), write=_short, unit=unit)


def _short(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of them do not exceed (nearest rank). `ValueError` without samples."""
    if not samples:
        raise ValueError("there are no samples")
    return sorted(samples)[max(math.ceil(share * len(samples)) - 1, 0)]


def spread(label: str, samples: Sequence[float]) -> Spread:
    """Minimum, quartiles, 99th percentile and maximum of `samples`. `ValueError` without samples."""
    low, quarter, median, three_quarters, tail, high = (quantile(samples, share) for share in (0, 0.25, 0.5, 0.75, 0.99, 1))
    return Spread(label, low, quarter, median, three_quarters, tail, high)
