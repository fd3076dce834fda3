"""The folder that a rewrite is written into: beside the final one, locked while its run lives, renamed at the end.

A lock on the temporary folder itself tells a live run from the remains of a killed one: the kernel drops it with the
process. Looking and claiming happens under a lock on the parent, so of two runs to the same name one is refused.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from speculators_convert.errors import UsageError, WriteError

_MARK = ".spec-convert-"


@contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """A new empty folder that becomes `out` when the block ends well and disappears when it does not."""
    refuse_existing(out)
    with _opened(out.parent) as parent:
        with _locked(parent):
            _clear_debris(out)
            folder = out.parent / f".{out.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}"
            folder.mkdir()
            own = os.open(folder, os.O_RDONLY)
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield folder
            _sync_folders(folder)
            refuse_existing(out)
            folder.rename(out)
            os.fsync(parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(own)


def refuse_existing(out: Path) -> None:
    """`UsageError` when the name is taken, by whatever it is."""
    if os.path.lexists(out):
        raise UsageError("the output already exists", where=str(out), hint="pass a new folder, or remove this one first")
    if not out.parent.is_dir():
        raise UsageError("the folder of the output does not exist", where=str(out.parent), hint="create it first")


def _sync_folders(top: Path) -> None:
    """The names in `top` and below it, on the disk."""
    for base, _, _ in os.walk(top):
        with _opened(Path(base)) as descriptor:
            os.fsync(descriptor)


def _clear_debris(out: Path) -> None:
    """Remove what killed runs left behind; `WriteError` when a run to the same name is alive."""
    for folder in sorted(out.parent.glob(f".{_escaped(out.name)}{_MARK}*")):
        if not folder.is_dir() or folder.is_symlink():
            continue
        with _opened(folder) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WriteError("another run is writing to this output", where=str(out), measured=folder.name, hint="wait for it, or pass another --out") from error
            shutil.rmtree(folder)


def _escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
