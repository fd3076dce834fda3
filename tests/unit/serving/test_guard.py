"""A guard ends what it runs with whatever that started: asked, orphaned, or when the command moves to a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from speculators_convert.serving import guard

FAMILY = """
import subprocess, sys, time
for new in (False, True):
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"], start_new_session=new)
print("up", flush=True)
time.sleep(300)
"""


def start(mark: str, owner: int, words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, guard.__file__, str(owner), mark, *words], stdout=subprocess.PIPE, text=True)


def await_family(mark: str) -> None:
    """Until all three carry the mark: a child has its environment once it runs its own program."""
    deadline = time.monotonic() + 20
    while len(guard.marked(mark)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(mark: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and guard.marked(mark):
        time.sleep(0.1)
    return not guard.marked(mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ends_the_family_when_asked(number: signal.Signals) -> None:
    mark = f"asked-{number}-{os.getpid()}"
    process = start(mark, os.getpid(), [sys.executable, "-c", FAMILY])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    await_family(mark)
    process.send_signal(number)
    assert process.wait(30) == 143
    process.stdout.close()
    assert gone(mark)


def test_ends_the_family_when_the_owner_is_killed(tmp_path: Path) -> None:
    mark, script = f"orphan-{os.getpid()}", tmp_path / "owner.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, subprocess, sys, time
        subprocess.Popen([sys.executable, {guard.__file__!r}, str(os.getpid()), {mark!r}, sys.executable, "-c", {FAMILY!r}], start_new_session=True)
        time.sleep(300)
        """)
    )
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    await_family(mark)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert gone(mark)


def test_gives_the_status_of_a_command_that_ends() -> None:
    process = start("ends", os.getpid(), [sys.executable, "-c", "raise SystemExit(7)"])
    assert process.wait(20) == 7
    assert process.stdout is not None
    process.stdout.close()
