"""Rows of heads that `normalize` has split over rank files: each rank reads its own, whatever number of ranks they were written for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from speculators_convert.checkpoint import read_header
from speculators_convert.container.header import DTYPE_BITS, Header
from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME, RankManifest, RankSlice
from speculators_convert.smoke.engine.load import read_tensor
from speculators_convert.sources import FileInfo, LocalSource, Source, SourceId
from speculators_convert.spec import TensorRef


def is_split(folder: Path) -> bool:
    """Whether the draft's heads lie in rank files."""
    return (folder / MANIFEST_NAME).is_file()


@dataclass(slots=True)
class CountedSource:
    """A source that counts the bytes which it hands out."""

    inner: Source
    bytes_read: int = 0

    @property
    def id(self) -> SourceId:
        """Identity of the source behind."""
        return self.inner.id

    def files(self) -> tuple[FileInfo, ...]:
        """Files of the source behind."""
        return self.inner.files()

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes of the source behind."""
        data = self.inner.read(path, start, stop)
        self.bytes_read += len(data)
        return data


class RankFiles:
    """The split heads of one folder, and the bytes read of them. That they make a whole, the checks before the load have seen."""

    def __init__(self, source: Source) -> None:
        self._for_headers, self._for_rows = CountedSource(source), CountedSource(source)
        self._infos = {info.path: info for info in source.files()}
        manifest = RankManifest.model_validate_json(self._for_headers.read(MANIFEST_NAME, 0, self._infos[MANIFEST_NAME].size_bytes))
        self._tensors = {tensor.name: tensor for tensor in manifest.tensors}
        self._headers: dict[str, Header] = {}

    @property
    def row_bytes(self) -> int:
        """Bytes that were read for rows."""
        return self._for_rows.bytes_read

    @property
    def header_bytes(self) -> int:
        """Bytes that were read to know where rows lie: the manifest, and the header of each file that holds some of them."""
        return self._for_headers.bytes_read

    def size_bytes(self, name: str) -> int:
        """Bytes of all rows of a tensor, without the padding of its last ranks."""
        tensor = self._tensors[name]
        return math.prod(tensor.shape) * DTYPE_BITS[tensor.dtype] // 8

    def read(self, name: str, first: int, stop: int) -> Tensor:
        """Rows first to stop of a tensor, as byte ranges of the files that hold them."""
        tensor = self._tensors[name]
        spans = [(item, max(item.first_row, first), min(item.stop_row, stop)) for item in tensor.slices]
        parts = [self._part(name, item, begin, end) for item, begin, end in spans if begin < end]
        return torch.cat(parts) if parts else torch.empty((0, *tensor.shape[1:]))

    def _part(self, name: str, item: RankSlice, first: int, stop: int) -> Tensor:
        stored = next(found for found in self._header(item.file).tensors if found.name == name)
        row, shape = stored.size_bytes // stored.shape[0], (stop - first, *stored.shape[1:])
        start = stored.start + (first - item.first_row) * row
        return read_tensor(self._for_rows, TensorRef(file=item.file, name=name, dtype=stored.dtype, shape=shape, start=start, stop=start + (stop - first) * row))

    def _header(self, path: str) -> Header:
        """Its length first, then itself: a longer read would take rows, of another rank perhaps."""
        if path not in self._headers:
            self._headers[path] = read_header(self._for_headers, self._infos[path], first_bytes=8)
        return self._headers[path]


def open_rank_files(folder: Path) -> RankFiles:
    """The rank files of a draft's folder."""
    return RankFiles(LocalSource(folder))
