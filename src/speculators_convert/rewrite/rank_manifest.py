"""Vocabulary-parallel heads on disk: one file per rank, and a manifest that says which rows each holds."""

from __future__ import annotations

from pydantic import Field

from speculators_convert.model import Model

MANIFEST_NAME = "spec-convert.ranks.json"
RANK_FOLDER = "ranks"
SPLIT_ROLES = ("lm_head.weight", "markov_head.markov_w2.weight")
"""Tensors whose rows are draft ids."""


class RankSlice(Model):
    """The rows of one tensor on one rank, followed there by `padding_rows` of zeros."""

    rank: int = Field(ge=0)
    file: str
    first_row: int = Field(ge=0)
    stop_row: int = Field(ge=0)
    padding_rows: int = Field(ge=0)
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", description="Of the rank's tensor with its padding; None in a plan, which has read nothing yet")


class SplitTensor(Model):
    """A tensor that is spread over the ranks."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    slices: tuple[RankSlice, ...]


class RankManifest(Model):
    """All split tensors of one checkpoint."""

    schema_version: str = "1"
    tp: int = Field(ge=1)
    tensors: tuple[SplitTensor, ...]


def rank_file(rank: int, tp: int) -> str:
    """Path of one rank's file."""
    return f"{RANK_FOLDER}/rank-{rank:05d}-of-{tp:05d}.safetensors"


def row_ranges(rows: int, tp: int) -> list[tuple[int, int, int]]:
    """First row, end row and padding rows of each rank: equal heights, the last ranks padded."""
    height = -(-rows // tp)
    bounds = [(min(rank * height, rows), min((rank + 1) * height, rows)) for rank in range(tp)]
    return [(first, stop, height - (stop - first)) for first, stop in bounds]


def rows_problem(tensor: SplitTensor, tp: int) -> str:
    """Why the slices are not each rank's share of all rows; empty when they are."""
    ranks = [item.rank for item in tensor.slices]
    if ranks != list(range(tp)):
        return f"{tensor.name} has slices for ranks {ranks}, tp is {tp}"
    end = 0
    for item in tensor.slices:
        if item.first_row < end:
            return f"{tensor.name}: rank {item.rank} starts at row {item.first_row}, but the rank before it holds the rows below {end}"
        if item.first_row > end:
            return f"{tensor.name}: rows {end} to {item.first_row - 1} are on no rank"
        if item.stop_row < item.first_row:
            return f"{tensor.name}: rank {item.rank} ends at row {item.stop_row}, before its start"
        end = item.stop_row
    heights = {item.stop_row - item.first_row + item.padding_rows for item in tensor.slices}
    if end != tensor.shape[0]:
        return f"{tensor.name}: the ranks hold {end} rows of {tensor.shape[0]}"
    return "" if len(heights) == 1 else f"{tensor.name}: the ranks have unequal heights {sorted(heights)}"
