"""Read a checkpoint whose heads were split over ranks as one whole: the rank files appear as one more weight file.

What does not fit together (ranks that overlap, missing rows, a file written for another number of ranks) makes the
manifest a refused file, which every check sees.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from speculators_convert.checkpoint import MAX_DOCUMENT_BYTES, read_header
from speculators_convert.container.header import DTYPE_BITS, Header, HeaderFault, Tensor, encode
from speculators_convert.container.index import INDEX_NAME
from speculators_convert.errors import SourceError
from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME, RankManifest, RankSlice, SplitTensor, rows_problem
from speculators_convert.sources import FileInfo, Source, SourceId

VIRTUAL_NAME = "model-ranks-assembled.safetensors"


@dataclass(frozen=True, slots=True)
class _Range:
    """Where a stretch of the virtual file lies: literal bytes, or a range of a rank file."""

    start: int
    stop: int
    file: str | None
    offset: int = 0
    data: bytes = b""


def assembled(source: Source) -> Source:
    """`source` itself when its heads are not split; else a view of it as a whole, or one whose manifest is refused."""
    infos = {info.path: info for info in source.files()}
    manifest_info = infos.get(MANIFEST_NAME)
    if manifest_info is None or manifest_info.refused:
        return source
    try:
        manifest = _read_manifest(source, manifest_info)
        headers = _rank_headers(source, manifest, infos)
        return AssembledSource(source, manifest, headers)
    except _UnfitError as error:
        return RefusedRanks(source, str(error))


class _UnfitError(Exception):
    """The ranks do not make a whole."""


class _View:
    """A source behind another one."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner

    @property
    def id(self) -> SourceId:
        """Identity of the source behind."""
        return self.inner.id

    @property
    def root(self) -> Path | None:
        """The folder of the source behind, if it is one."""
        found = getattr(self.inner, "root", None)
        return found if isinstance(found, Path) else None


class RefusedRanks(_View):
    """The source with its manifest marked as not to be used."""

    def __init__(self, inner: Source, why: str) -> None:
        super().__init__(inner)
        self._why = why

    def files(self) -> tuple[FileInfo, ...]:
        """All files; the manifest carries the reason."""
        return tuple(FileInfo(info.path, info.size_bytes, info.sha256, self._why if info.path == MANIFEST_NAME else info.refused) for info in self.inner.files())

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes of the source behind."""
        return self.inner.read(path, start, stop)


class AssembledSource(_View):
    """The source with the rank files as one weight file."""

    def __init__(self, inner: Source, manifest: RankManifest, headers: dict[str, Header]) -> None:
        super().__init__(inner)
        self._rank_files = set(headers)
        self._ranges, self._size = _layout(manifest, headers)
        self._index = _index_with(inner, [tensor.name for tensor in manifest.tensors])

    def files(self) -> tuple[FileInfo, ...]:
        """All files but manifest and rank files, and the one that stands for them."""
        kept = [info for info in self.inner.files() if info.path not in self._rank_files and info.path != MANIFEST_NAME]
        kept = [FileInfo(info.path, len(self._index)) if info.path == INDEX_NAME and self._index is not None else info for info in kept]
        return tuple(sorted((*kept, FileInfo(VIRTUAL_NAME, self._size)), key=lambda info: info.path))

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes of one file; those of the assembled file come from the ranks."""
        if path == INDEX_NAME and self._index is not None:
            return self._index[start:stop]
        if path != VIRTUAL_NAME:
            return self.inner.read(path, start, stop)
        if not 0 <= start <= stop <= self._size:
            raise SourceError("the file is shorter than expected", where=path, measured=f"{self._size} bytes", expected=f"{stop} bytes")
        return b"".join(self._part(item, max(start, item.start), min(stop, item.stop)) for item in self._ranges if item.start < stop and start < item.stop)

    def _part(self, item: _Range, start: int, stop: int) -> bytes:
        first, last = start - item.start, stop - item.start
        return item.data[first:last] if item.file is None else self.inner.read(item.file, item.offset + first, item.offset + last)


def _read_manifest(source: Source, info: FileInfo) -> RankManifest:
    if info.size_bytes > MAX_DOCUMENT_BYTES:
        raise _UnfitError(f"the manifest is too large: {info.size_bytes} bytes")
    try:
        manifest = RankManifest.model_validate_json(source.read(MANIFEST_NAME, 0, info.size_bytes))
    except ValidationError as error:
        first = error.errors()[0]
        raise _UnfitError(f"the manifest is not valid: {'/'.join(map(str, first['loc']))}: {first['msg']}") from error
    for tensor in manifest.tensors:
        problem = rows_problem(tensor, manifest.tp) if tensor.shape and tensor.dtype in DTYPE_BITS else f"{tensor.name} has no rows or an unknown dtype"
        if problem:
            raise _UnfitError(problem)
    return manifest


def _rank_headers(source: Source, manifest: RankManifest, infos: dict[str, FileInfo]) -> dict[str, Header]:
    headers: dict[str, Header] = {}
    for tensor in manifest.tensors:
        for item in tensor.slices:
            if item.file not in headers:
                headers[item.file] = _header(source, infos.get(item.file), item)
            problem = _slice_problem(tensor, item, headers[item.file], manifest.tp)
            if problem:
                raise _UnfitError(problem)
    return headers


def _header(source: Source, info: FileInfo | None, item: RankSlice) -> Header:
    if info is None or info.refused:
        raise _UnfitError(f"the file of rank {item.rank} is not there: {item.file}")
    try:
        return read_header(source, info)
    except HeaderFault as fault:
        raise _UnfitError(f"{item.file}: {fault.message}") from fault


def _slice_problem(tensor: SplitTensor, item: RankSlice, header: Header, tp: int) -> str:
    written = (header.metadata.get("tp"), header.metadata.get("rank"))
    if written != (str(tp), str(item.rank)):
        return f"{item.file} was written as rank {written[1]} of {written[0]}, the manifest wants rank {item.rank} of {tp}"
    found = next((stored for stored in header.tensors if stored.name == tensor.name), None)
    expected = (tensor.dtype, (item.stop_row - item.first_row + item.padding_rows, *tensor.shape[1:]))
    if found is None or (found.dtype, found.shape) != expected:
        shown = "no such tensor" if found is None else f"{found.dtype} {list(found.shape)}"
        return f"{item.file}: {tensor.name} should be {expected[0]} {list(expected[1])}, found {shown}"
    return ""


def _layout(manifest: RankManifest, headers: dict[str, Header]) -> tuple[Sequence[_Range], int]:
    """Ranges of the virtual file in order, and its size."""
    tensors = [Tensor(item.name, item.dtype, item.shape, 0, math.prod(item.shape) * DTYPE_BITS[item.dtype] // 8) for item in manifest.tensors]
    header = encode(tensors, {"format": "pt"})
    ranges, position = [_Range(0, len(header), None, data=header)], len(header)
    for tensor in manifest.tensors:
        row = math.prod(tensor.shape[1:]) * DTYPE_BITS[tensor.dtype] // 8
        for item in tensor.slices:
            size = (item.stop_row - item.first_row) * row
            stored = next(found for found in headers[item.file].tensors if found.name == tensor.name)
            ranges.append(_Range(position, position + size, item.file, stored.start))
            position += size
    return ranges, position


def _index_with(source: Source, names: Sequence[str]) -> bytes | None:
    """The index with the split tensors in it; None when there is no index that can be read, which `collect` then reports."""
    info = next((item for item in source.files() if item.path == INDEX_NAME and not item.refused), None)
    if info is None or info.size_bytes > MAX_DOCUMENT_BYTES:
        return None
    try:
        document = json.loads(source.read(INDEX_NAME, 0, info.size_bytes))
        document["weight_map"].update(dict.fromkeys(names, VIRTUAL_NAME))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return json.dumps(document).encode()
