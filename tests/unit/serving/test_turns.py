"""Turns of servers with several ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speculators_convert.serving.turns import turn

HOLDER = "from speculators_convert.serving.turns import turn\nwith turn(2, lambda: None):\n print('held', flush=True); input()"


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Another process whose turn it is."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_process_at_a_time_and_one_rank_never_waits(holder: subprocess.Popen[str]) -> None:
    looked = []

    def check() -> None:
        looked.append(1)
        if len(looked) == 3:
            holder.kill()  # its turn ends with it, whatever ended it

    with turn(1, check):
        assert looked == []
    with turn(2, check):
        assert len(looked) >= 3
    with turn(2, check):
        pass


@pytest.mark.usefixtures("holder")
def test_waiting_ends_when_the_server_is_gone() -> None:
    class GoneError(Exception): ...

    def check() -> None:
        raise GoneError

    with pytest.raises(GoneError), turn(2, check):
        pytest.fail("never its turn")


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_without_a_lock_nobody_waits_and_no_link_is_followed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place, elsewhere = tmp_path / f"spec-convert-{os.getuid()}-ranks.lock", tmp_path / "elsewhere"
    if kind == "link":
        place.symlink_to(elsewhere)
    else:
        place.mkdir()
    with turn(2, lambda: pytest.fail("waited")):
        pass
    assert not elsewhere.exists()
