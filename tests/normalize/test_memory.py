"""Memory does not grow with the size of a draft."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("benchmark", sys.argv[1])
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)
"""
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "normalize.py"


def in_own_process(code: str, *arguments: object) -> str:
    """The benchmark's functions, in a process whose memory is its own."""
    return subprocess.run([sys.executable, "-c", RUN + code, str(BENCHMARK), *map(str, arguments)], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("gigabytes", [0.1, pytest.param(2.0, marks=pytest.mark.slow)])
def test_peak_memory_is_below_150_megabytes(tmp_path: Path, gigabytes: float) -> None:
    in_own_process("benchmark.make_draft(Path(sys.argv[2]), float(sys.argv[3]))", tmp_path / "source", gigabytes)
    peak = in_own_process("benchmark.normalize(Path(sys.argv[2])); print(benchmark.peak_rss_bytes())", tmp_path)
    assert int(peak) < 150e6


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dense", "ranks"])
def test_peak_memory_of_computed_layouts_is_below_250_megabytes(tmp_path: Path, task: str) -> None:
    make = "folder = Path(sys.argv[2]); benchmark.make_draft(folder / 'source', 2.0); benchmark.make_target(folder / 'target', folder / 'source')"
    in_own_process(make, tmp_path)
    assert int(in_own_process(f"benchmark.{task}(Path(sys.argv[2])); print(benchmark.peak_rss_bytes())", tmp_path)) < 250e6
