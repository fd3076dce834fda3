"""Runs the files of `inside/` in the SGLang environment, each in one process, and shows what failed there."""

import subprocess
from pathlib import Path

import pytest
from sglang_harness.environment import PYTHON, Site

INSIDE = Path(__file__).parent / "inside"
FILES = sorted(path.name for path in INSIDE.glob("test_*.py"))


@pytest.mark.parametrize("name", FILES)
def test_inside(site: Site, name: str, tmp_path: Path) -> None:
    command = [
        str(PYTHON),
        "-W",
        "ignore",
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "--rootdir",
        str(INSIDE),
        "--confcutdir",
        str(INSIDE),
        "-p",
        "no:cacheprovider",
        "--tb=short",
        str(INSIDE / name),
    ]
    done = subprocess.run(command, env=site.environ(), cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
