"""Runs a command for an owner and ends it, with all that it started, when the owner asks or is gone: python guard.py OWNER MARK WORD...

A process of its own, so that even SIGKILL of the owner leaves nothing behind. Standard library only: it starts in a blink.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "SPEC_CONVERT_SERVER"
"""Variable by which each process of a server is known, whatever session or group it moved to."""
KEPT = {"SPT_NOENV": "1"}
"""Tells setproctitle, which SGLang's processes call, to leave the environment readable."""
POLL_SECONDS, TERM_SECONDS, KILL_SECONDS = 0.2, 3.0, 10.0


def main() -> int:
    """Exit status of the command; 143 when it was ended."""
    owner, mark, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: asked.append(got))
    child = subprocess.Popen(words, env={**os.environ, MARK: mark, **KEPT}, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 (the caller's own command)
    while child.poll() is None and not asked and os.getppid() == owner:
        time.sleep(POLL_SECONDS)
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)  # the leader alone: ranks that end first are taken for a crash and looked into
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_SECONDS)
    ended = child.returncode
    _kill(child.pid, mark)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(KILL_SECONDS)
    return 143 if ended is None or asked else abs(ended)


def _kill(group: int, mark: str) -> None:
    """SIGKILL to the group, and to whatever still carries the mark, until nothing does."""
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        left = marked(mark)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Living processes other than this one that carry `mark` in their environment. Linux only; none elsewhere."""
    needle, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
