"""A range of a tensor's rows, as segments: what one tensor-parallel rank holds."""

from __future__ import annotations

import math

import numpy as np

from speculators_convert.layouts.padding import width_bytes
from speculators_convert.layouts.parts import Part
from speculators_convert.rewrite.plan import Copy, Gather, Literal, Rows, Segment
from speculators_convert.rewrite.runs import flags_of, runs_of


def row_slice(part: Part, first: int, stop: int) -> list[Segment]:
    """Rows `first` to `stop` of a tensor that is a single segment."""
    if len(part.segments) != 1:
        raise ValueError(f"{part.name} is made of {len(part.segments)} segments")
    row = math.prod(part.shape[1:]) * width_bytes(part.dtype)
    segment = part.segments[0]
    if first >= stop:
        return []
    if isinstance(segment, Copy):
        return [segment.model_copy(update={"start": segment.start + first * row, "stop": segment.start + stop * row})]
    if isinstance(segment, Rows):
        return [_rows(segment, first, stop)]
    if isinstance(segment, Gather):
        return [_gathered(segment, first, stop)]
    raise ValueError(f"{part.name} cannot be cut by rows")


def zero_rows(part: Part, count: int) -> list[Segment]:
    """Padding."""
    row = math.prod(part.shape[1:]) * width_bytes(part.dtype)
    return [Literal(data=bytes(row), count=count)] if count else []


def _rows(segment: Rows, first: int, stop: int) -> Rows:
    flags = flags_of(segment.runs)
    before = int(np.count_nonzero(flags[:first]))
    return segment.model_copy(update={"start": segment.start + before * segment.row_bytes, "runs": runs_of(flags[first:stop])})


def _gathered(segment: Gather, first: int, stop: int) -> Gather:
    positions = np.flatnonzero(flags_of(segment.runs))[first:stop]
    start, end = int(positions[0]), int(positions[-1]) + 1
    return segment.model_copy(update={"start": segment.start + start * segment.row_bytes, "runs": runs_of(flags_of(segment.runs)[start:end])})
