"""The vocabulary tables `d2t` and `t2d`: decoded, and read as what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.container.small import decode
from speculators_convert.spec import D2T


@dataclass(frozen=True, slots=True)
class VocabularyTables:
    """`d2t` [draft_vocab] int64 and `t2d` [target_vocab] uint8 as they stand in the file; None when absent or not readable."""

    d2t: NDArray[np.int64] | None
    t2d: NDArray[np.uint8] | None

    def targets(self, kind: D2T) -> NDArray[np.int64] | None:
        """Target id of each draft id, [draft_vocab] int64."""
        if self.d2t is None or kind is D2T.NONE:
            return None
        if kind is D2T.ABSOLUTE:
            return self.d2t
        with np.errstate(over="ignore"):
            return np.arange(self.d2t.size, dtype=np.int64) + self.d2t

    def members(self) -> NDArray[np.int64] | None:
        """Target ids that `t2d` marks, ascending."""
        return None if self.t2d is None else np.flatnonzero(self.t2d).astype(np.int64)


def read_tables(checkpoint: Checkpoint) -> VocabularyTables:
    """The tables of a checkpoint, from the payloads gathered with it."""
    d2t, t2d = _table(checkpoint, "d2t"), _table(checkpoint, "t2d")
    whole = d2t is not None and d2t.dtype.kind in "iu"
    return VocabularyTables(d2t.astype(np.int64) if d2t is not None and whole else None, t2d.astype(np.uint8) if t2d is not None and t2d.dtype == np.uint8 else None)


def read_kind(tables: VocabularyTables, target_vocab_size: int | None) -> tuple[D2T, str]:
    """What `d2t` holds, and the observation that says so. Offsets unless the numbers contradict it and fit absolute ids."""
    if tables.d2t is None:
        return D2T.NONE, "there is no d2t table"
    members = tables.members()
    if members is not None and members.size == tables.d2t.size:
        offsets = tables.targets(D2T.OFFSET)
        if offsets is not None and np.array_equal(offsets, members):
            return D2T.OFFSET, "arange + d2t gives exactly the ids that t2d marks"
        if np.array_equal(tables.d2t, members):
            return D2T.ABSOLUTE, "d2t itself gives exactly the ids that t2d marks"
    offset_fits = _fits(tables.targets(D2T.OFFSET), target_vocab_size)
    if not offset_fits and _fits(tables.d2t, target_vocab_size):
        return D2T.ABSOLUTE, "d2t holds ascending ids inside the vocabulary, while arange + d2t does not"
    return D2T.OFFSET, "arange + d2t is ascending and inside the vocabulary" if offset_fits else "offsets are the convention; the values fit neither reading"


def _fits(targets: NDArray[np.int64] | None, target_vocab_size: int | None) -> bool:
    if targets is None or targets.size == 0:
        return False
    inside = int(targets[0]) >= 0 and (target_vocab_size is None or int(targets[-1]) < target_vocab_size)
    return inside and bool(np.all(np.diff(targets) > 0))


def _table(checkpoint: Checkpoint, name: str) -> NDArray[Any] | None:
    location, payload = checkpoint.tensors.get(name), checkpoint.payloads.get(name)
    if location is None or payload is None or len(location.tensor.shape) != 1:
        return None
    return decode(payload, location.tensor.dtype, location.tensor.shape)
