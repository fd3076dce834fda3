"""Split vocabulary-parallel heads: each rank's rows in a file of its own, all else stays together."""

from __future__ import annotations

from collections.abc import Sequence

from speculators_convert.errors import UsageError
from speculators_convert.layouts.parts import METADATA, Part, weight_file
from speculators_convert.layouts.row_slices import row_slice, zero_rows
from speculators_convert.rewrite.plan import OutputFile
from speculators_convert.rewrite.rank_manifest import SPLIT_ROLES, RankManifest, RankSlice, SplitTensor, rank_file, row_ranges

MAX_TP = 64


def split(parts: Sequence[Part], tp: int) -> tuple[list[Part], list[OutputFile], RankManifest]:
    """The parts that stay whole, the rank files, and the manifest without digests."""
    if not 1 <= tp <= MAX_TP:
        raise UsageError("heads can be split over this many ranks only", where="--tp", measured=tp, expected=f"1 to {MAX_TP}")
    heads = sorted((part for part in parts if part.role in SPLIT_ROLES), key=lambda part: part.name)
    whole = [part for part in parts if part.role not in SPLIT_ROLES]
    files = [weight_file(rank_file(rank, tp), [_share(part, rank, tp) for part in heads], {**METADATA, "tp": str(tp), "rank": str(rank)}, rank) for rank in range(tp)]
    tensors = tuple(SplitTensor(name=part.name, dtype=part.dtype, shape=part.shape, slices=tuple(_slices(part, tp))) for part in heads)
    return whole, files if heads else [], RankManifest(tp=tp, tensors=tensors)


def _share(part: Part, rank: int, tp: int) -> Part:
    first, stop, padding = row_ranges(part.shape[0], tp)[rank]
    segments = (*row_slice(part, first, stop), *zero_rows(part, padding))
    height = (stop - first + padding, *part.shape[1:])
    rows = f"rows {first} to {stop - 1} of {part.shape[0]}" if stop > first else "no rows"
    why = "; ".join(item for item in (rows, f"{padding} rows of padding" if padding else "", part.why) if item)
    return Part(part.name, part.role, part.dtype, height, segments, part.sources, copied=part.copied and not padding, why=why)


def _slices(part: Part, tp: int) -> list[RankSlice]:
    shares = enumerate(row_ranges(part.shape[0], tp))
    return [RankSlice(rank=rank, file=rank_file(rank, tp), first_row=first, stop_row=stop, padding_rows=padding) for rank, (first, stop, padding) in shares]
