"""Helpers for hostile files: a copy of a real draft to spoil, and a run of the command line with its peak memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DRAFT = ROOT / "fixtures" / "trained" / "tiny-bonus-reduced-vanilla"


_MAIN = """
import os, re, sys
from pathlib import Path
from speculators_convert.__main__ import main
try:
    main()
finally:
    Path(os.environ["PEAK"]).write_text(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
"""Runs the command line and notes its own peak; what the kernel reports for a child begins at the size of its parent."""


@dataclass(frozen=True)
class Run:
    """What one run of the command line did."""

    status: int
    out: str
    err: str
    peak_bytes: int
    seconds: float

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def findings(self) -> dict[str, dict[str, Any]]:
        """The first finding of each code."""
        return {item["code"]: item for item in reversed(self.report["findings"])}


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A copy of a real draft."""
    return Path(shutil.copytree(DRAFT, tmp_path / "draft"))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Run `spec-convert` in a process of its own; never a traceback."""

    def call(*arguments: object, limit_s: float = 60.0, **environment: str) -> Run:
        command = [sys.executable, "-c", _MAIN, *map(str, arguments)]
        began = time.monotonic()
        with (tmp_path / "stdout").open("w+b") as out, (tmp_path / "stderr").open("w+b") as err:
            try:
                status = subprocess.run(
                    command,
                    stdout=out,
                    stderr=err,
                    cwd=tmp_path,
                    env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PEAK": str(tmp_path / "peak"), **environment},
                    check=False,
                    timeout=limit_s,
                ).returncode
            except subprocess.TimeoutExpired:
                pytest.fail(f"no answer after {limit_s} s")
        texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
        assert "Traceback" not in texts[1], texts[1]
        return Run(status, *texts, int((tmp_path / "peak").read_text()) * 1024, time.monotonic() - began)

    return call
