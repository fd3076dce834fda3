"""The heads of a reduced-vocabulary draft, widened so that a target-wide vocabulary drafts the same tokens.

P columns are added to the Markov rank r. Column r of `markov_w1` is 1 for each token; column r of `markov_w2`, which gets
a row for each target id, is 0 for a kept id and -32768 for any other, so an id that the draft does not have gets
probability 0. The other added columns are 0. A gate or a recurrent output would scale the added columns, so the rows that
compute it there get weight 0 and bias 30: sigmoid and tanh of 30 round to 1 in float32 and in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from speculators_convert.layouts.padding import columns, computed, constant, range_of, rows_of, scattered
from speculators_convert.layouts.parts import Part
from speculators_convert.rewrite.plan import Segment
from speculators_convert.spec import ConfidenceHead, TensorRef

NEVER = -32768.0
"""Exact in bfloat16 and float16, and far below any logit."""
ONE_BIAS = 30.0


@dataclass(frozen=True, slots=True)
class Widening:
    """The sizes before, the number of columns to add, and the runs of left-out and kept ids of the target's vocabulary."""

    rank: int
    pad: int
    hidden: int
    vocabulary: int
    runs: tuple[int, ...]
    confidence: ConfidenceHead | None

    def part(self, role: str, ref: TensorRef) -> Part | None:
        """The widened tensor of `role`; None when it stays as it is."""
        makers: dict[str, Callable[[str, TensorRef], Part]] = {
            "markov_head.markov_w1.weight": self._w1,
            "markov_head.markov_w2.weight": self._w2,
            "markov_head.gate_proj.weight": self._gate,
            "markov_head.gate_proj.bias": self._gate_bias,
            "markov_head.joint_proj.weight": self._joint,
            "markov_head.joint_proj.bias": self._joint_bias,
        }
        if self.confidence and self.confidence.with_markov:
            makers["confidence_head.proj.weight"] = self._confidence
        return makers[role](role, ref) if role in makers else None

    @property
    def _wide(self) -> int:
        return self.rank + self.pad

    def _w1(self, role: str, ref: TensorRef) -> Part:
        body = rows_of(ref, [(self.rank, columns([1.0] + [0.0] * (self.pad - 1), ref.dtype))])
        return computed(role, ref, (ref.shape[0], self._wide), [body], "the first added column is 1 for each token")

    def _w2(self, role: str, ref: TensorRef) -> Part:
        filler = columns([0.0] * self.rank + [NEVER] + [0.0] * (self.pad - 1), ref.dtype)
        body = scattered(ref, self.runs, columns([0.0] * self.pad, ref.dtype), filler)
        return computed(role, ref, (self.vocabulary, self._wide), [body], "kept rows at their target ids, -32768 in the first added column of all others")

    def _gate(self, role: str, ref: TensorRef) -> Part:
        """Input columns are [hidden | previous]."""
        width = self.hidden + self._wide
        body = rows_of(ref, [(self.hidden, b""), (self.rank, columns([0.0] * self.pad, ref.dtype))])
        return computed(role, ref, (self._wide, width), [body, constant([0.0] * width, ref.dtype, self.pad)], "no input reaches the gate of the added columns")

    def _gate_bias(self, role: str, ref: TensorRef) -> Part:
        return computed(role, ref, (self._wide,), [range_of(ref), constant([ONE_BIAS], ref.dtype, self.pad)], "the gate of the added columns is 1")

    def _joint(self, role: str, ref: TensorRef) -> Part:
        """Input columns are [state | previous | hidden], output rows [gate | candidate | output]."""
        zeros, width, body = columns([0.0] * self.pad, ref.dtype), 2 * self._wide + self.hidden, list[Segment]()
        for third in range(3):
            body.append(rows_of(ref, [(self.rank, zeros), (self.rank, zeros), (self.hidden, b"")], first=third * self.rank, count=self.rank))
            body.append(constant([0.0] * width, ref.dtype, self.pad))
        return computed(role, ref, (3 * self._wide, width), body, "no input reaches the added rows")

    def _joint_bias(self, role: str, ref: TensorRef) -> Part:
        """Gate 1/2 and candidate 0 keep the added states at 0; the output is 1."""
        body = list[Segment]()
        for third, bias in enumerate((0.0, 0.0, ONE_BIAS)):
            body.extend((range_of(ref, first=third * self.rank, count=self.rank), constant([bias], ref.dtype, self.pad)))
        return computed(role, ref, (3 * self._wide,), body, "the output of the added columns is 1")

    def _confidence(self, role: str, ref: TensorRef) -> Part:
        body = rows_of(ref, [(self.hidden + self.rank, columns([0.0] * self.pad, ref.dtype))])
        return computed(role, ref, (1, self.hidden + self._wide), [body], "the added columns do not count")
