"""Bytes of a plan's segments, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from speculators_convert.rewrite.plan import Copy, Gather, Literal, Rows, Segment, Text
from speculators_convert.rewrite.runs import flags_of
from speculators_convert.sources import Source

Read = Callable[[str, int, int], bytes]
Chunk = bytes | memoryview


def stream(segment: Segment, sources: Mapping[str, Source], chunk_bytes: int) -> Iterator[Chunk]:
    """The segment's bytes in order; no chunk is larger than `chunk_bytes` unless a single row is."""
    if isinstance(segment, Text):
        yield segment.text.encode()
    elif isinstance(segment, Literal):
        yield from _repeated(segment, chunk_bytes)
    elif isinstance(segment, Copy):
        read = sources[segment.source].read
        for start in range(segment.start, segment.stop, chunk_bytes):
            yield read(segment.file, start, min(start + chunk_bytes, segment.stop))
    elif isinstance(segment, Rows):
        yield from _rows(segment, sources[segment.source].read, chunk_bytes)
    else:
        yield from _gathered(segment, sources[segment.source].read, chunk_bytes)


def _repeated(segment: Literal, chunk_bytes: int) -> Iterator[bytes]:
    at_once = max(1, chunk_bytes // max(1, len(segment.data)))
    for start in range(0, segment.count, at_once):
        yield segment.data * min(at_once, segment.count - start)


def _rows(segment: Rows, read: Read, chunk_bytes: int) -> Iterator[Chunk]:
    from_source = flags_of(segment.runs)
    template = np.frombuffer(b"".join(bytes(piece.take) + piece.pad for piece in segment.pieces), np.uint8)
    filler = np.frombuffer(segment.filler, np.uint8)
    at_once = max(1, chunk_bytes // segment.output_row_bytes)
    position = segment.start
    for first in range(0, from_source.size, at_once):
        here = from_source[first : first + at_once]
        stop = position + int(here.sum()) * segment.row_bytes
        rows = np.frombuffer(read(segment.file, position, stop), np.uint8).reshape(-1, segment.row_bytes)
        position = stop
        block = np.empty((here.size, template.size), np.uint8)
        if not here.all():
            block[~here] = filler
        block[here] = _spread(segment, rows, template)
        yield block.data.cast("B")


def _spread(segment: Rows, rows: NDArray[np.uint8], template: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Source rows with their padding in place."""
    wide = np.tile(template, (rows.shape[0], 1))
    source = output = 0
    for piece in segment.pieces:
        wide[:, output : output + piece.take] = rows[:, source : source + piece.take]
        source += piece.take
        output += piece.take + len(piece.pad)
    return wide


def _gathered(segment: Gather, read: Read, chunk_bytes: int) -> Iterator[Chunk]:
    wanted = flags_of(segment.runs)
    at_once = max(1, chunk_bytes // segment.row_bytes)
    for first in range(0, wanted.size, at_once):
        here = wanted[first : first + at_once]
        if not here.any():
            continue
        start = segment.start + first * segment.row_bytes
        rows = np.frombuffer(read(segment.file, start, start + here.size * segment.row_bytes), np.uint8).reshape(-1, segment.row_bytes)
        yield rows[here].data.cast("B")
