"""Write the files of a plan and hash them on the way.

Memory does not depend on the size of a file: one chunk is read while the one before it is hashed, once for its file and
once for its tensor, by two threads (hashlib and the file system work outside the interpreter lock).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from speculators_convert.errors import SourceError
from speculators_convert.rewrite.plan import OutputFile, Segment
from speculators_convert.rewrite.receipt import TensorDigest
from speculators_convert.sources import Source, safe_path
from speculators_convert.write.chunks import Chunk, stream
from speculators_convert.write.links import Whole

CHUNK_BYTES = 1024 * 1024
"""Small enough for the allocator to use the same memory again; larger chunks cost a page fault for each page."""
SYNC_BYTES = 32 * 1024 * 1024
"""Bytes after which the kernel is asked to begin writing, so that the last sync finds little left to do."""


class FileWriter:
    """Writes files of a plan into one folder; the threads hash and sync."""

    def __init__(self, folder: Path, sources: Mapping[str, Source], chunk_bytes: int, pool: ThreadPoolExecutor) -> None:
        self._folder, self._sources, self._chunk_bytes, self._pool = folder, sources, chunk_bytes, pool

    def write(self, file: OutputFile, tell: Callable[[int], None]) -> tuple[str, list[TensorDigest]]:
        """Write one file; its digest and those of its tensors."""
        path = self._folder / safe_path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        digests, syncs = _Digests(file, self._pool), _Syncs(descriptor, self._pool)
        try:
            for chunk, index in _chunks(file, lambda segment, _: stream(segment, self._sources, self._chunk_bytes)):
                _write_all(descriptor, chunk)
                digests.take(chunk, index)
                syncs.wrote(len(chunk))
                tell(len(chunk))
            found = digests.found()
            os.fsync(descriptor)
        finally:
            digests.settle()
            syncs.settle()
            os.close(descriptor)
        return found

    def read_back(self, file: OutputFile, whole: Whole, tell: Callable[[int], None]) -> tuple[str, list[TensorDigest]]:
        """The digests of a file that was linked, from the bytes that stand in the output; `SourceError` when it is not the file that the plan means."""
        descriptor = os.open(self._folder / safe_path(file.path), os.O_RDONLY | os.O_NOFOLLOW)
        digests = _Digests(file, self._pool)
        try:
            if (os.fstat(descriptor).st_size, os.pread(descriptor, len(whole.head), 0)) != (file.size_bytes, whole.head):
                raise SourceError("the source was changed while it was linked", where=file.path, hint="stop what writes to it and run the command again")
            for chunk, index in _chunks(file, lambda segment, start: _standing(descriptor, start, start + segment.size_bytes, self._chunk_bytes)):
                digests.take(chunk, index)
                tell(len(chunk))
            found = digests.found()
            os.fsync(descriptor)
        finally:
            digests.settle()
            os.close(descriptor)
        return found


class _Digests:
    """Hashes a file and its tensors, one chunk behind the caller."""

    def __init__(self, file: OutputFile, pool: ThreadPoolExecutor) -> None:
        self._file, self._pool = file, pool
        self._whole, self._parts = hashlib.sha256(), [hashlib.sha256() for _ in file.tensors]
        self._pending: list[Future[None]] = []

    def take(self, chunk: Chunk, index: int | None) -> None:
        """The file's next bytes, and the tensor that they belong to."""
        _wait(self._pending)
        wanted = (self._whole,) if index is None else (self._whole, self._parts[index])
        self._pending = [self._pool.submit(digest.update, chunk) for digest in wanted]

    def found(self) -> tuple[str, list[TensorDigest]]:
        """All digests."""
        _wait(self._pending)
        tensors = zip(self._file.tensors, self._parts, strict=True)
        return self._whole.hexdigest(), [TensorDigest(file=self._file.path, sha256=part.hexdigest(), **tensor.model_dump()) for tensor, part in tensors]

    def settle(self) -> None:
        """No thread is at work any more."""
        _settle(self._pending)


class _Syncs:
    """Asks the kernel to begin writing what is complete, while the rest is still being copied."""

    def __init__(self, descriptor: int, pool: ThreadPoolExecutor) -> None:
        self._descriptor, self._pool = descriptor, pool
        self._running: Future[None] | None = None
        self._asked = self._written = 0

    def wrote(self, size_bytes: int) -> None:
        self._written += size_bytes
        if self._written - self._asked >= SYNC_BYTES and (self._running is None or self._running.done()):
            start, self._asked = self._asked, self._written
            self._running = self._pool.submit(os.posix_fadvise, self._descriptor, start, self._written - start, os.POSIX_FADV_DONTNEED)

    def settle(self) -> None:
        """No thread uses the descriptor any more."""
        _settle([self._running] if self._running else [])


def _wait(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        future.result()


def _settle(futures: Iterable[Future[None]]) -> None:
    """Wait without looking at the outcome; it was, or will be, reported otherwise."""
    for future in futures:
        future.exception()


def _chunks(file: OutputFile, produce: Callable[[Segment, int], Iterator[Chunk]]) -> Iterator[tuple[Chunk, int | None]]:
    """Chunks of a file with the number of the tensor that they belong to; `produce` gives those of a segment that begins at a position."""
    position, index = 0, 0
    for segment in file.segments:
        while index < len(file.tensors) and position >= file.tensors[index].stop:
            index += 1
        inside = index < len(file.tensors) and file.tensors[index].start <= position
        written = 0
        for chunk in produce(segment, position):
            written += len(chunk)
            yield chunk, index if inside else None
        if written != segment.size_bytes:
            raise SourceError("a source gave another number of bytes than asked for", where=file.path, measured=written, expected=segment.size_bytes)
        position += written


def _standing(descriptor: int, start: int, stop: int, chunk_bytes: int) -> Iterator[bytes]:
    """Bytes of an open file; fewer when it ends early."""
    while start < stop and (chunk := os.pread(descriptor, min(chunk_bytes, stop - start), start)):
        start += len(chunk)
        yield chunk


def _write_all(descriptor: int, chunk: Chunk) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def write_bytes(path: Path, data: bytes) -> None:
    """A small new file, synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
