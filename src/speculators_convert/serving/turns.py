"""One server of several ranks is asked at a time.

Side by side on the same GPUs their collectives wait for each other's time slices, on both devices: on two H200s five servers at once
answered at 250 tokens a second each, where one alone has 600 or more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.1


@contextlib.contextmanager
def turn(ranks: int, check: Callable[[], object]) -> Iterator[None]:
    """Wait until no other server of several ranks is asked by this user on this machine; one rank never waits.

    `check` is called while waiting and raises when waiting has no sense any more. The turn ends with the process, whatever ends it.
    Where no lock can be had (a read-only folder of temporary files), nobody waits: turns make a run faster, not right.
    """
    lock = _lock() if ranks > 1 else None
    if lock is None:
        yield
        return
    try:
        while not _taken(lock):
            check()
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(lock)


def _lock() -> int | None:
    """Descriptor of this user's lock file; never through somebody's link."""
    file = Path(tempfile.gettempdir()) / f"spec-convert-{os.getuid()}-ranks.lock"
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
