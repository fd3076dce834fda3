"""A run that is killed at any moment leaves no partial folder under the final name, and the next run succeeds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from normalizing import normalize_draft, plan_draft, read_draft, synthetic_draft

from speculators_convert.rewrite import receipt
from speculators_convert.write.execution import execute


def start_writing(source: Path, shelf: Path) -> int:
    """A process that writes one output after another, so that a signal at a random moment hits each part of a run."""
    read = read_draft(source)
    plan = plan_draft(read, "speculators")
    child = os.fork()
    if child == 0:
        try:
            for number in range(100_000):
                execute(plan, read.source, shelf / f"out{number}", chunk_bytes=4096)
        finally:
            os._exit(1)
    return child


def kill_at_random(times: int, tmp_path: Path) -> None:
    source, shelf = tmp_path / "source", tmp_path / "shelf"
    source.mkdir()
    for name, data in synthetic_draft(layers=4, vocabulary=200, hidden=64).items():
        (source / name).write_bytes(data)
    names = sorted(path.name for path in normalize_draft(source, tmp_path / "complete").folder.iterdir())
    dice = random.Random(20)  # noqa: S311 (test data)
    unfinished_runs = 0
    for _ in range(times):
        shelf.mkdir()
        child = start_writing(source, shelf)
        time.sleep(dice.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        finished = sorted((path for path in shelf.iterdir() if not path.name.startswith(".")), key=lambda path: path.stat().st_mtime_ns)
        for folder in finished:
            assert sorted(path.name for path in folder.iterdir()) == names
        for folder in finished[-1:]:
            assert receipt.verify(folder) == ()
        unfinished = [path for path in shelf.iterdir() if path.name.startswith(".")]
        assert len(unfinished) <= 1
        for remains in unfinished:
            unfinished_runs += 1
            normalize_draft(source, shelf / remains.name.split(".spec-convert-")[0].removeprefix("."))
            assert not remains.exists()
        shutil.rmtree(shelf)
    assert unfinished_runs > times // 4, "the kills hit too few runs to show anything"


def test_twenty_kills(tmp_path: Path) -> None:
    kill_at_random(20, tmp_path)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path: Path) -> None:
    kill_at_random(200, tmp_path)
