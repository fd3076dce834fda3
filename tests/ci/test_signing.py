"""Signing as the docs describe it: their commands, run as they stand with a fresh key."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from tests.ci.conftest import ROOT, TRAINED, environment

pytestmark = pytest.mark.slow
DOCS = (ROOT / "docs/receipts.md").read_text(encoding="utf-8")


def test_the_documented_commands_sign_and_see_a_change(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    shutil.copytree(TRAINED / "tiny-anchor-full-vanilla", tmp_path / "my-folder")
    commands = next(block for block in re.findall(r"```sh\n(.*?)```", DOCS, re.DOTALL) if "model_signing" in block)
    keys = "\n".join(re.findall(r"`(openssl [^`]+)`", DOCS))
    env = environment(PATH=f"{tmp_path}/env/bin:/usr/bin:/bin")
    done = subprocess.run(["sh", "-ec", f"{keys}\n{commands}"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "my-folder/config.json").write_bytes((tmp_path / "my-folder/config.json").read_bytes() + b" ")
    verify = next(line for line in commands.splitlines() if " verify " in line)
    assert subprocess.run(["sh", "-ec", verify], cwd=tmp_path, env=env, capture_output=True, check=False).returncode != 0
