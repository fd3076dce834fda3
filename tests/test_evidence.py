"""Recorded runs: digests, commit and age; and what the check says of a spoilt one."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "tools" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


evidence = load()


@pytest.mark.parametrize("folder", evidence.runs(), ids=lambda path: path.name)
def test_recorded_run_holds(folder: Path) -> None:
    assert list(evidence.problems(folder, date.fromisoformat(json.loads((folder / "manifest.json").read_text())["date"]))) == []


def test_the_last_run_with_cuda_is_fresh() -> None:
    """By today's date: claims about CUDA rest on runs that age with SGLang and the drivers."""
    dates = [manifest["date"] for folder in evidence.runs() if "H200" in (manifest := json.loads((folder / "manifest.json").read_text()))["machine"]]
    age = datetime.now(tz=UTC).date() - date.fromisoformat(max(dates))
    assert timedelta(days=-1) <= age <= timedelta(days=evidence.MAX_AGE_DAYS), "run tools/smoke_gpu.py and tools/gpu_plugin.py on a GPU again"


def test_spoilt_runs_are_seen(tmp_path: Path) -> None:
    folder = shutil.copytree(evidence.runs()[0], tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    day = date.fromisoformat(manifest["date"])
    name = sorted(manifest["files"])[0]
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    (folder / "more.json").write_text("{}")
    found = " ".join(evidence.problems(folder, day + timedelta(days=evidence.MAX_AGE_DAYS + 1)))
    assert f"{name}: not the bytes" in found
    assert "more.json" in found
    assert "days old" in found
    manifest["commit"] = "0" * 40
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "not in the history" in " ".join(evidence.problems(folder, day))


@pytest.mark.parametrize("tool", ["equivalence_table.py", "bench_table.py"])
def test_results_in_the_page_are_those_of_the_evidence(tool: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run tools/{tool}"
