"""The GitLab example: its script lines, executed in order with the variables that it declares."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml
from tests.ci.conftest import ROOT, TRAINED, environment

from speculators_convert.version import __version__

pytestmark = pytest.mark.slow

JOB: dict[str, Any] = yaml.safe_load((ROOT / "examples/gitlab/.gitlab-ci.yml").read_text(encoding="utf-8"))["spec-convert-gate"]


def _run(workspace: Path, package: Path, *, install: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {**JOB["variables"], "SPEC_CONVERT": str(package), "DRAFT": "drafts/mine", **variables}
    lines = [*(JOB["before_script"] if install else ()), *JOB["script"]]
    return subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(lines)], cwd=workspace, env=environment(**given), capture_output=True, text=True, check=False)


def test_pass_fail_and_unreadable(workspace: Path, package: Path) -> None:
    passed = _run(workspace, package)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    report = workspace / JOB["artifacts"]["reports"]["junit"]
    assert JUnitXml.fromfile(str(report)).failures == 0
    failed = _run(workspace, package, install=False, POLICY="publish", TARGET=str(TRAINED / "tiny-target"), EVIDENCE="absent.json")
    assert failed.returncode == 1
    assert JUnitXml.fromfile(str(report)).failures == 1
    assert _run(workspace, package, install=False, DRAFT="drafts/absent").returncode == 3
    assert JUnitXml.fromfile(str(report)).failures == 1
    assert all((workspace / name).exists() for name in JOB["artifacts"]["paths"])


@pytest.mark.parametrize("path", ["examples/gitlab/.gitlab-ci.yml", "examples/pre-commit-config.yaml"])
def test_the_pinned_version_is_this_version(path: str) -> None:
    pins = re.findall(r"speculators-convert==([\w.]+)|rev: v([\w.]+)", (ROOT / path).read_text(encoding="utf-8"))
    assert {a or b for a, b in pins} == {__version__}
