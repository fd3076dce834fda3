"""Is a difference between drafted and plain output rounding, or a defect of the engine?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from speculators_convert.results.smoke import Equivalence, Split

if TYPE_CHECKING:
    from speculators_convert.smoke.engine.splits import Gaps

TOLERANCE_STEPS = {"float32": 256.0, "bfloat16": 16.0}
"""Largest gap, in rounding steps of the dtype, that summing in another order can explain.

At an honest split the gap has changed sign between plain decoding and block verification, so that both gaps lie within the change.
benchmarks/engine_ties.py measures the change on a CPU: at most 18 steps in float32 and 8 in bfloat16 over 1,260 positions of the trained
target; on random targets, whose weights are wide and chaotic, 118 in float32, and in bfloat16 3 at the 99th percentile but up to 70.
The tolerance is twice the trained target's worst, and the random ones' in float32, where it costs nothing: no position had so small a gap.
In bfloat16 it covers a third of the trained target's positions and up to two thirds of a random one's, so that a single tie says little:
a defect shows on some of several prompts.
"""


def judge(prompt: int, at: int, tokens: tuple[int | None, int | None], gaps: Gaps, dtype: str) -> Split:
    """The verdict on one split: a tie when the target itself hardly prefers either token, in both passes."""
    tie = max(abs(gaps.plain), abs(gaps.block)) <= TOLERANCE_STEPS[dtype]
    plain, block = (gap if math.isfinite(gap) else None for gap in gaps)
    return Split(prompt=prompt, at=at, plain_token=tokens[0], drafted_token=tokens[1], plain_gap_steps=plain, block_gap_steps=block, verdict="tie" if tie else "defect")


def report(mode: str, tp: int, total: int, splits: Iterable[Split], dtype: str) -> Equivalence:
    """All splits of a mode, counted."""
    found = tuple(splits)
    ties = sum(split.verdict == "tie" for split in found)
    return Equivalence(mode=mode, tp=tp, dtype=dtype, tolerance_steps=TOLERANCE_STEPS[dtype], exact=total - len(found), ties=ties, defects=len(found) - ties, splits=found)
