"""On a GPU: whatever ends a run of `smoke`, no process and no device memory of its servers stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpu.memory import SLACK_BYTES, settled, used
from sglang_harness.processes import heeding_hangups, left, processes

from speculators_convert.serving import devices

REASON = "needs a GPU, and SGLang in the Python that runs the tests"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not devices.gpus() or find_spec("sglang") is None, reason=REASON)]
SETTLE_SECONDS, START_SECONDS = 30, 300
HOLDING_BYTES = 1 << 30
"""A server holds more than this."""


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The command over the bundled pair, and the mark of its processes."""
    mark = f"ENDS={os.getpid()}-{abs(hash(request.node.name))}"
    words = [
        sys.executable,
        "-m",
        "speculators_convert",
        "smoke",
        "--engine",
        "sglang",
        "--modes",
        "graph",
        "--no-control",
        "--out",
        str(tmp_path / "out"),
        *getattr(request, "param", ()),
    ]
    name, _, value = mark.partition("=")
    with heeding_hangups(), (tmp_path / "log.txt").open("wb") as log, subprocess.Popen(words, env={**os.environ, name: value}, stdout=log, stderr=subprocess.STDOUT) as process:
        yield process, mark
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_after_a_signal_no_process_and_no_memory_stay(run: tuple[subprocess.Popen[bytes], str], number: signal.Signals, tmp_path: Path) -> None:
    before, (process, mark) = used(), run
    deadline = time.monotonic() + START_SECONDS
    while max(now - then for now, then in zip(used(), before, strict=True)) < HOLDING_BYTES:
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert processes(mark, "scheduler")
    process.send_signal(number)
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 128 + number)
    assert left(mark) == []
    assert max(now - then for now, then in zip(settled(before, SETTLE_SECONDS), before, strict=True)) <= SLACK_BYTES


@pytest.mark.parametrize("run", [("--timeout", "15")], indirect=True)
def test_after_a_timeout_no_process_and_no_memory_stay(run: tuple[subprocess.Popen[bytes], str], tmp_path: Path) -> None:
    before, (process, mark) = used(), run
    assert process.wait(120) == 1
    assert "no last answer after 15 s (--timeout)" in (tmp_path / "log.txt").read_text()
    assert left(mark) == []
    assert max(now - then for now, then in zip(settled(before, SETTLE_SECONDS), before, strict=True)) <= SLACK_BYTES
