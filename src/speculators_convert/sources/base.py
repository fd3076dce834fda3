"""What a source of files offers: a list and byte ranges. Nothing else knows where the bytes come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from speculators_convert.errors import SourceError


@dataclass(frozen=True, slots=True)
class SourceId:
    """Where a checkpoint came from; `revision` is a commit when the source has one."""

    kind: str
    name: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file: POSIX path inside the checkpoint, size, the SHA-256 that the source publishes (if any), and why it must not be read (if so)."""

    path: str
    size_bytes: int
    sha256: str | None = None
    refused: str | None = None


class Source(Protocol):
    """A checkpoint's files."""

    @property
    def id(self) -> SourceId:
        """Identity of the source."""

    def files(self) -> tuple[FileInfo, ...]:
        """All files, sorted by path."""

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Exactly bytes `start..stop` of a file; `SourceError` when they are not all there."""


def safe_path(path: str) -> str:
    """`path` itself when it stays inside the checkpoint; `SourceError` otherwise (absolute, `..`, backslash, control characters)."""
    pure = PurePosixPath(path)
    bad = not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in path or any(ord(char) < 32 for char in path)
    if bad or str(pure) != path:
        raise SourceError("a file name leaves the checkpoint", where=repr(path), hint="do not use this checkpoint; its file names are not plain relative paths")
    return path
