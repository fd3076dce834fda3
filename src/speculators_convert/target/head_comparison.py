"""Compare every row of a draft's head with the target's row that its vocabulary maps it to. Streams both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, TensorRef
from speculators_convert.target.pairing import Pairing
from speculators_convert.target.vocabulary import VocabularyTables

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HeadComparison:
    """How many rows differ and by how much; `reason` says why there was nothing to compare."""

    rows: int = 0
    different_rows: int = 0
    largest: float = 0.0
    first_draft_id: int | None = None
    reason: str = ""

    @property
    def equal(self) -> bool:
        """All rows were compared and none differs."""
        return not self.reason and self.different_rows == 0


def compare_heads(source: Source, spec: DraftSpec, tables: VocabularyTables | None, target_source: Source, pairing: Pairing) -> HeadComparison:
    """Each draft row against the target's, as bytes; the size of a difference in the stored numbers."""
    own = spec.tensors.get("lm_head.weight")
    reason = _why_not(own, pairing)
    if reason or own is None or pairing.head is None:
        return HeadComparison(reason=reason)
    targets = tables.targets(spec.d2t) if tables else None
    ids = np.arange(own.shape[0], dtype=np.int64) if targets is None else targets
    if ids.size != own.shape[0] or not ids.size or np.any(np.diff(ids) <= 0) or ids[0] < 0 or ids[-1] >= pairing.head.tensor.shape[0]:
        return HeadComparison(reason="the vocabulary map is not an ascending list of the target's ids, one for each row")
    different, largest, first = 0, 0.0, None
    for offset, mine, theirs in _blocks(source, own, target_source, pairing, ids):
        unequal = np.flatnonzero((mine != theirs).any(axis=1))
        if unequal.size:
            first = offset + int(unequal[0]) if first is None else first
            different += int(unequal.size)
            largest = max(largest, _distance(mine[unequal], theirs[unequal], own.dtype))
    return HeadComparison(int(ids.size), different, largest, first)


def _why_not(own: TensorRef | None, pairing: Pairing) -> str:
    if own is None or len(own.shape) != 2:
        return "the draft has no head of its own"
    if pairing.head is None:
        return "the target has no plain lm_head: it may be packed or quantized"
    head = pairing.head.tensor
    if head.dtype not in ("BF16", "F16", "F32"):
        return f"the target's lm_head is stored as {head.dtype}: packed or quantized"
    if (own.dtype, own.shape[1]) != (head.dtype, head.shape[1]):
        return f"the heads differ in kind: {own.dtype} {list(own.shape)} in the draft, {head.dtype} {list(head.shape)} in the target"
    return ""


def _blocks(source: Source, own: TensorRef, target_source: Source, pairing: Pairing, ids: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.uint8]]]:
    """Number of the first row, draft rows and target rows as bytes; no read is much larger than `CHUNK_BYTES`."""
    if pairing.head is None:
        return
    head, width = pairing.head, own.shape[1] * DTYPE_BITS[own.dtype] // 8
    at_once = max(1, CHUNK_BYTES // width)
    first = 0
    while first < ids.size:
        last = max(first + 1, int(np.searchsorted(ids, ids[first] + at_once)))
        span = target_source.read(head.file, head.tensor.start + int(ids[first]) * width, head.tensor.start + (int(ids[last - 1]) + 1) * width)
        theirs = np.frombuffer(span, np.uint8).reshape(-1, width)[ids[first:last] - ids[first]]
        mine = np.frombuffer(source.read(own.file, own.start + first * width, own.start + last * width), np.uint8).reshape(-1, width)
        yield first, mine, theirs
        first = last


def _distance(mine: NDArray[np.uint8], theirs: NDArray[np.uint8], dtype: str) -> float:
    difference = np.abs(_numbers(mine, dtype) - _numbers(theirs, dtype))
    return float(np.max(np.where(np.isfinite(difference), difference, np.inf)))


def _numbers(rows: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    flat = np.ascontiguousarray(rows)
    if dtype == "BF16":
        return (flat.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return flat.view("<f2" if dtype == "F16" else "<f4").astype(np.float32)
