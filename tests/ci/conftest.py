"""A folder as a user has it: a checkout of their own with one draft in it, and the repository beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = ("src", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "action.yml", ".pre-commit-hooks.yaml")
TRAINED = ROOT / "fixtures" / "trained"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A user's checkout with a sound draft."""
    folder = tmp_path / "work"
    shutil.copytree(TRAINED / "tiny-bonus-reduced-vanilla", folder / "drafts" / "mine")
    return folder


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a checkout of this repository has: tracked ones, and new ones that git does not ignore."""
    folder = tmp_path_factory.mktemp("action") / "spec-convert"
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGED], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def environment(**extra: str) -> Mapping[str, str]:
    """The environment of a CI job: nothing of this test run's own Python leaks in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PYTEST", "COV_"))}
    return {**kept, **extra}
