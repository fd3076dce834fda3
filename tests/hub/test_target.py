"""A target on the Hub: `smoke` names it, fetches it once, and takes no code or pickles along."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_files import DRAFT, ROOT
from local_hub import LocalHub

pytestmark = pytest.mark.engine
TARGET = ROOT / "fixtures" / "trained" / "tiny-target"


def smoke(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "speculators_convert", "smoke", *map(str, arguments), "--max-new-tokens", "8", "--format", "json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_target_and_verifier_may_be_hub_ids(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = shutil.copytree(TARGET, tmp_path / "target")
    (folder / "modeling_evil.py").write_text("raise SystemExit(9)")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    hub.add("org/target", folder)
    stated = smoke(environment(), DRAFT, "--target", "org/target")
    assert stated.returncode == 0, stated.stderr
    reference = Path(json.loads(stated.stdout)["target"]["reference"])
    assert not {"modeling_evil.py", "pytorch_model.bin"} & {path.name for path in reference.iterdir()}
    draft = shutil.copytree(DRAFT, tmp_path / "draft")
    config = json.loads((draft / "config.json").read_text())
    config["speculators_config"]["verifier"]["name_or_path"] = "org/target"
    (draft / "config.json").write_text(json.dumps(config))
    named = smoke(environment(), draft)
    assert named.returncode == 0, named.stderr
    assert json.loads(named.stdout)["target"]["reference"] == str(reference)


def test_target_that_the_hub_has_not(hub: LocalHub, environment: Callable[..., dict[str, str]]) -> None:
    pytest.importorskip("torch")
    missing = smoke(environment(), DRAFT, "--target", "org/absent")
    assert missing.returncode == 3
    assert "org/absent" in missing.stderr
    assert "Traceback" not in missing.stderr
