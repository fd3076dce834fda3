"""A checkpoint of 207 GB and 20,009 tensors in 42 shards, all holes: cost of `inspect` as a command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 200_000_000


@pytest.mark.parametrize("form", ["text", "json"])
def test_large_checkpoint(run: Callable, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "large"
    maker = [sys.executable, str(ROOT / "tools" / "make_sparse.py"), str(folder), "--layers", "1818", "--shard-bytes", "5000000000"]
    subprocess.run(maker, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=60)
    assert sum(path.stat().st_size for path in folder.iterdir()) > 200_000_000_000
    before = os.times()
    done = run("inspect", folder, "--format", form)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert done.status == 0
    assert done.peak_bytes < MEMORY_BYTES
    assert used < 3.0, "processor seconds; wall time is less on two idle cores"
    if form == "json":
        assert len(done.report["tensors"]) == 20_009
