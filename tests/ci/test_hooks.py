"""The hooks, run by pre-commit itself on a user's repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ci.conftest import environment

pytestmark = pytest.mark.slow


def _git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *arguments], cwd=folder, env=environment(), check=True, capture_output=True)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """This repository as pre-commit clones it."""
    folder = tmp_path_factory.mktemp("hooks") / "spec-convert"
    shutil.copytree(package, folder)
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "state under test")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pre-commit")


def _pre_commit(workspace: Path, hooks: Path, home: Path) -> subprocess.CompletedProcess[str]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=hooks, capture_output=True, text=True, check=True).stdout.strip()
    (workspace / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks}\n    rev: {commit}\n    hooks:\n      - id: spec-convert-gate\n      - id: spec-convert-verify\n"
    )
    _git(workspace, "add", "-A")
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--verbose"], cwd=workspace, env=environment(PRE_COMMIT_HOME=str(home)), capture_output=True, text=True, check=False
    )


def test_both_hooks_on_sound_and_on_wrong_drafts(workspace: Path, hooks: Path, home: Path) -> None:
    _git(workspace, "init", "-q", "-b", "main")
    sound = _pre_commit(workspace, hooks, home)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "PASS  drafts/mine" in sound.stdout

    config = workspace / "drafts/mine/config.json"
    before = config.read_text()
    config.write_text(before.replace('"mask_token_id": ', '"mask_token_id": 99999'))
    wrong = _pre_commit(workspace, hooks, home)
    assert wrong.returncode == 1
    assert "FAIL  drafts/mine" in wrong.stdout

    config.write_text(before)
    subprocess.run(
        [sys.executable, "-m", "speculators_convert", "normalize", "drafts/mine", "--layout", "speculators", "--out", "drafts/written"],
        cwd=workspace,
        check=True,
        capture_output=True,
    )
    written = _pre_commit(workspace, hooks, home)
    assert written.returncode == 0, written.stdout + written.stderr
    assert "OK  drafts/written" in written.stdout

    weights = workspace / "drafts/written/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    changed = _pre_commit(workspace, hooks, home)
    assert changed.returncode == 1
    assert "CHANGED  drafts/written" in changed.stdout


def test_files_that_are_no_checkpoint_are_left_alone(workspace: Path, hooks: Path, home: Path) -> None:
    shutil.rmtree(workspace / "drafts")
    (workspace / "config.json").write_text("{}")
    _git(workspace, "init", "-q", "-b", "main")
    done = _pre_commit(workspace, hooks, home)
    assert done.returncode == 0, done.stdout + done.stderr
