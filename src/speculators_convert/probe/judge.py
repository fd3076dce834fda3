"""Two readings compared on the same texts: differences, their intervals, and a verdict that calls noise a tie."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from speculators_convert.probe.score import Steps

ACCEPTED_MARGIN, KL_MARGIN = 0.1, 0.05
"""Smaller differences, in tokens per step and in nats, are ties whatever their interval: rope theta within a factor of two and block
positions off by one stay below them on drafts that were trained for the purpose."""
LEVEL = 0.95
RESAMPLES = 1000
_T = TypeVar("_T")
Verdict = Literal["tie", "worse", "better"]


@dataclass(slots=True)
class Tally:
    """What one reading scored: KL per text and drafted token, and decoded steps per prompt."""

    kl: list[tuple[float, ...]] = field(default_factory=list)
    decoded: dict[int, Steps] = field(default_factory=dict)

    @property
    def accepted(self) -> float:
        """Tokens per verify step over all prompts."""
        return _ratio(list(self.decoded.values()))

    def kl_at(self, token: int) -> float:
        """Mean KL of a drafted token over all texts."""
        return _mean([values[token] for values in self.kl])


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a reading to the stated one."""

    accepted: float
    interval: tuple[float, float]
    kl: float
    kl_interval: tuple[float, float]

    @property
    def verdict(self) -> Verdict:
        """Worse or better when both measures say so beyond their margin and their interval, else a tie."""
        if self.accepted < -ACCEPTED_MARGIN and self.interval[1] < 0 and self.kl >= KL_MARGIN and self.kl_interval[0] > 0:
            return "worse"
        if self.accepted > ACCEPTED_MARGIN and self.interval[0] > 0 and self.kl <= -KL_MARGIN and self.kl_interval[1] < 0:
            return "better"
        return "tie"


def compare(other: Tally, stated: Tally) -> Difference:
    """`other` less `stated`, paired: both are resampled with the same prompts."""
    keys = list(stated.decoded)
    pairs = [(other.decoded[key], stated.decoded[key]) for key in keys]
    token = _first_difference(other, stated)
    divergences = [left[token] - right[token] for left, right in zip(other.kl, stated.kl, strict=True)]

    def gain(rows: Sequence[tuple[Steps, Steps]]) -> float:
        return _ratio([left for left, _ in rows]) - _ratio([right for _, right in rows])

    return Difference(gain(pairs), bootstrap(pairs, gain), _mean(divergences), bootstrap(divergences, _mean))


def bootstrap(rows: Sequence[_T], statistic: Callable[[Sequence[_T]], float]) -> tuple[float, float]:
    """Percentile interval of `statistic` over resampled rows, always the same for the same rows; all numbers when there is only one row."""
    if len(rows) < 2:
        return -float("inf"), float("inf")
    generator = random.Random(0)  # noqa: S311 (resampling, no secret)
    found = sorted(statistic(generator.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    edge = round(RESAMPLES * (1 - LEVEL) / 2)
    return found[edge], found[-1 - edge]


def _first_difference(other: Tally, stated: Tally) -> int:
    """The first drafted token whose KL the readings can move: with a causal block, the mask token is not seen by the first slot."""
    width = min(len(other.kl[0]), len(stated.kl[0]))
    return next((token for token in range(width) if any(left[token] != right[token] for left, right in zip(other.kl, stated.kl, strict=True))), 0)


def _ratio(steps: Sequence[Steps]) -> float:
    return sum(item.tokens for item in steps) / max(sum(item.steps for item in steps), 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
