"""A folder on disk. Links that leave the folder are listed but never followed, except into a hub cache's own `blobs`."""

from __future__ import annotations

import os
from pathlib import Path

from speculators_convert.errors import SourceError
from speculators_convert.sources.base import FileInfo, SourceId, safe_path

_MAX_FILES = 100_000
_SKIPPED_FOLDERS = {".git", ".cache", "__pycache__"}


def loadable(folder: Path) -> Path:
    """`folder`, for a library that loads models; `SourceError` for a name that is not UTF-8: safetensors, tokenizers and JSON have no way to say it."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise SourceError("the folder's name is not UTF-8, and models cannot be loaded from it", where=str(folder), hint="rename it") from error
    return folder


class LocalSource:
    """Reads a folder with `pread`; keeps no file open between calls."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._allowed = [self._root]
        if self._root.parent.name == "snapshots":
            self._allowed.append(self._root.parent.parent / "blobs")
        self._id = SourceId("folder", str(folder))

    @property
    def id(self) -> SourceId:
        """Folder path as the user gave it."""
        return self._id

    @property
    def root(self) -> Path:
        """The resolved folder, for callers that must compare or link paths on disk."""
        return self._root

    def files(self) -> tuple[FileInfo, ...]:
        """All regular files below the folder, sorted by POSIX path."""
        found: list[FileInfo] = []
        try:
            for base, folders, names in os.walk(self._root):
                folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
                found.extend(info for name in names if (info := self._info(Path(base) / name)))
                if len(found) > _MAX_FILES:
                    raise SourceError("too many files", where=str(self._root), measured=f"> {_MAX_FILES}", hint="name the folder that holds config.json")
        except OSError as error:
            raise SourceError(f"cannot list the folder ({error.strerror})", where=str(self._root)) from error
        return tuple(sorted(found, key=lambda info: info.path))

    def located(self, path: str) -> Path:
        """Where a file lies once links are followed; `SourceError` when that is outside the folder."""
        return self._allowed_path(path).resolve()

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes `start..stop` of one file."""
        full = self._allowed_path(path)
        try:
            with full.open("rb", buffering=0) as file:
                return _read_exactly(file.fileno(), path, start, stop)
        except OSError as error:
            raise SourceError(f"cannot read the file ({error.strerror})", where=str(full), hint="check that it exists and that you may read it") from error

    def _allowed_path(self, path: str) -> Path:
        full = self._root / safe_path(path)
        if not self._inside(full):
            raise SourceError("a link leaves the checkpoint folder", where=path, hint="copy the file into the folder if you trust it")
        return full

    def _info(self, path: Path) -> FileInfo | None:
        name = path.relative_to(self._root).as_posix()
        if not _is_plain(name):
            return FileInfo(name.encode("utf-8", "backslashreplace").decode(), 0, refused="its name is not a plain UTF-8 path")
        try:
            if path.is_symlink() and not self._inside(path):
                return FileInfo(name, 0, refused="a link that leaves the folder")
            if not path.is_file():
                return None if not path.is_symlink() else FileInfo(name, 0, refused="a broken link")
            return FileInfo(name, path.stat().st_size)
        except (OSError, RuntimeError) as error:
            return FileInfo(name, 0, refused=f"cannot be read ({error})")

    def _inside(self, path: Path) -> bool:
        resolved = path.resolve()
        return any(resolved.is_relative_to(root) for root in self._allowed)


def _is_plain(name: str) -> bool:
    """Whether a name from the disk is UTF-8 (others come with surrogates) and safe to hand on."""
    try:
        return safe_path(name).isprintable() and bool(name.encode())
    except (SourceError, UnicodeEncodeError):
        return False


def _read_exactly(descriptor: int, path: str, start: int, stop: int) -> bytes:
    parts: list[bytes] = []
    while start < stop:
        part = os.pread(descriptor, min(stop - start, 1 << 30), start)
        if not part:
            raise SourceError("the file is shorter than expected", where=path, measured=f"ends at byte {start}", expected=f"{stop} bytes", hint="copy or download the file again")
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
