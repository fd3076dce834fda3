"""A far source read from front to back: growing read-ahead in a second thread, bounded memory, and the SHA-256 of each file on the way."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from speculators_convert.errors import SourceError
from speculators_convert.sources.base import FileInfo, Source, SourceId

FIRST_WINDOW_BYTES = 256 << 10
LARGEST_WINDOW_BYTES = 16 << 20
"""Two windows are held at a time."""


@dataclass(slots=True)
class _Window:
    """Bytes `start..stop` of a file, perhaps still on their way."""

    path: str
    start: int
    stop: int
    data: Future[bytes]


@dataclass(slots=True)
class _Digest:
    """SHA-256 of the first `position` bytes of a file."""

    position: int = 0
    state: Any = field(default_factory=hashlib.sha256)

    def take(self, start: int, data: bytes) -> None:
        """Add what extends the part seen so far; anything else is left for `verify`."""
        if start <= self.position < start + len(data):
            self.state.update(memoryview(data)[self.position - start :])
            self.position = start + len(data)


class StreamedSource:
    """Wraps a source for one long pass. Use as a context manager; `verify` before the result counts."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._infos = {info.path: info for info in source.files()}
        self._digests: dict[str, _Digest] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._windows: list[_Window] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for window in self._windows:
            window.data.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def id(self) -> SourceId:
        """Identity of the wrapped source."""
        return self._source.id

    def files(self) -> tuple[FileInfo, ...]:
        """Files of the wrapped source."""
        return self._source.files()

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes `start..stop` of one file."""
        if path not in self._infos or stop > self._infos[path].size_bytes:
            raise SourceError("the file is missing or shorter than expected", where=path, expected=f"{stop} bytes")
        self._catch_up(path, start)
        parts: list[memoryview] = []
        position = start
        while position < stop:
            window = self._window(path, position, stop)
            part = memoryview(window.data.result())[position - window.start : stop - window.start]
            parts.append(part)
            position += len(part)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def verify(self) -> None:
        """Compare each file that was read with the digest that the source publishes, reading what was left out; `SourceError` for a difference."""
        for path, digest in sorted(self._digests.items()):
            info = self._infos[path]
            self._catch_up(path, info.size_bytes)
            measured = digest.state.hexdigest()
            if measured != info.sha256:
                raise SourceError(
                    "the file is not the published one",
                    where=f"{self.id.name}, {path}",
                    measured=f"SHA-256 {measured}",
                    expected=str(info.sha256),
                    hint="run the command again; if it stays so, tell the repository's owner",
                )

    def _catch_up(self, path: str, position: int) -> None:
        """Read on to `position` where a digest is published: what is jumped over counts for it too, and would have to be fetched later."""
        if not self._infos[path].sha256:
            return
        digest = self._digests.setdefault(path, _Digest())
        while digest.position < position:
            self._window(path, digest.position, position).data.result()

    def _window(self, path: str, position: int, stop: int) -> _Window:
        """The window that holds `position`; starts the one after it."""
        found = next((window for window in self._windows if window.path == path and window.start <= position < window.stop), None)
        if found is None:
            self._windows = []
            info = self._infos[path]
            if not info.sha256 and info.size_bytes <= LARGEST_WINDOW_BYTES:
                return self._fetch(path, 0, info.size_bytes)  # at once: then its Git object id is checked
            return self._fetch(path, position, max(FIRST_WINDOW_BYTES, min(stop - position, LARGEST_WINDOW_BYTES)))
        if found is self._windows[-1] and found.stop < self._infos[path].size_bytes:
            self._windows = [found]
            self._fetch(path, found.stop, min(2 * (found.stop - found.start), LARGEST_WINDOW_BYTES))
        return found

    def _fetch(self, path: str, start: int, size_bytes: int) -> _Window:
        stop = min(start + size_bytes, self._infos[path].size_bytes)
        window = _Window(path, start, stop, self._pool.submit(self._receive, path, start, stop))
        self._windows.append(window)
        return window

    def _receive(self, path: str, start: int, stop: int) -> bytes:
        data = self._source.read(path, start, stop)
        if path in self._digests:
            self._digests[path].take(start, data)
        return data
