"""Processes of a command under test, by a mark in their environment."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path


def processes(mark: str, name: str = "") -> list[int]:
    """Living processes with `mark` in their environment and `name` in their command line: the command, its guards, the servers and their schedulers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (entry / "environ").read_bytes() and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def left(mark: str) -> list[int]:
    """Those that live on after 30 seconds."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and processes(mark):
        time.sleep(0.2)
    return processes(mark)


@contextlib.contextmanager
def heeding_hangups() -> Iterator[None]:
    """As at a terminal, also where the tests run under nohup: the command goes on ignoring what it was started to ignore."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
