"""Selections of rows as alternating run lengths: left out, taken, left out, ... Short in a plan even for large vocabularies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def flags_of(runs: Sequence[int]) -> NDArray[np.bool_]:
    """One flag per row."""
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def runs_of(flags: NDArray[np.bool_]) -> tuple[int, ...]:
    """The runs of one flag per row; the first run is of rows left out and may be empty."""
    if not flags.size:
        return ()
    edges = np.flatnonzero(np.diff(flags)) + 1
    lengths = np.diff(np.concatenate(([0], edges, [flags.size]))).tolist()
    return (0, *lengths) if flags[0] else tuple(lengths)


def runs_of_ids(ids: Sequence[int], rows: int) -> tuple[int, ...]:
    """The runs that take exactly `ids` of `rows` rows."""
    flags = np.zeros(rows, np.bool_)
    flags[np.asarray(ids, np.int64)] = True
    return runs_of(flags)
