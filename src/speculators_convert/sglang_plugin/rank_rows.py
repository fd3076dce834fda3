"""Rows of heads that `normalize` has split over rank files: each rank reads its own, whatever number of ranks they were written for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from speculators_convert.checkpoint import collect
from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME
from speculators_convert.rewrite.ranks import assembled
from speculators_convert.smoke.engine.load import read_tensor
from speculators_convert.sources import LocalSource
from speculators_convert.spec import TensorRef


def is_split(folder: Path) -> bool:
    """Whether the draft's heads lie in rank files."""
    return (folder / MANIFEST_NAME).is_file()


def read_rows(folder: Path, wanted: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, Tensor]]:
    """Rows first to stop of each named tensor, read as byte ranges."""
    source = assembled(LocalSource(folder))
    tensors = collect(source, payloads=()).tensors
    for name, (first, stop) in wanted.items():
        location = tensors[name]
        tensor = location.tensor
        row = tensor.size_bytes // tensor.shape[0]
        ref = TensorRef(
            file=location.file, name=name, dtype=tensor.dtype, shape=(stop - first, *tensor.shape[1:]), start=tensor.start + first * row, stop=tensor.start + stop * row,
        )  # fmt: skip
        yield name, read_tensor(source, ref)
