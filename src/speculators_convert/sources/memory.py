"""Files held in memory: for tests and for trainers that check a draft before it is saved."""

from __future__ import annotations

from collections.abc import Mapping

from speculators_convert.errors import SourceError
from speculators_convert.sources.base import FileInfo, SourceId, safe_path


class MemorySource:
    """A source over a mapping of POSIX path to bytes."""

    def __init__(self, files: Mapping[str, bytes], name: str = "memory") -> None:
        self._files = {safe_path(path): data for path, data in files.items()}
        self._id = SourceId("memory", name)

    @property
    def id(self) -> SourceId:
        """Identity: kind `memory`."""
        return self._id

    def files(self) -> tuple[FileInfo, ...]:
        """All files, sorted by path."""
        return tuple(FileInfo(path, len(data)) for path, data in sorted(self._files.items()))

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes `start..stop` of one file."""
        data = self._files.get(path)
        if data is None or stop > len(data):
            raise SourceError("the file is missing or shorter than expected", where=path, expected=f"{stop} bytes")
        return data[start:stop]
