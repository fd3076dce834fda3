"""The composite action: its `run:` steps, executed in order with the declared inputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml
from tests.ci.conftest import ROOT, TRAINED, environment

pytestmark = pytest.mark.slow

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass
class Job:
    """One job on a runner: where it works, and what its steps wrote."""

    workspace: Path
    package: Path
    runner: Path
    inputs: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)
    status: int = 0
    log: str = ""

    def run(self, *, skip: tuple[str, ...] = ()) -> None:
        """Each `run:` step in order; like the runner, stop at the first that fails."""
        for step in (item for item in STEPS if "run" in item and item["id"] not in skip):
            self._step(step)
            if self.status:
                return

    @property
    def summary(self) -> str:
        path = self.runner / "summary"
        return path.read_text() if path.exists() else ""

    def _step(self, step: dict[str, Any]) -> None:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script is an injection"
        given = {name: self._value(text) for name, text in step.get("env", {}).items()}
        output = self.runner / f"output-{step['id']}"
        output.touch()
        files = {"RUNNER_TEMP": str(self.runner), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.runner / "summary")}
        script = self.runner / f"{step['id']}.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], cwd=self.workspace, env=environment(**given, **files), capture_output=True, text=True, check=False
        )
        self.status, self.log = done.returncode, self.log + done.stdout + done.stderr
        self.outputs.update(line.split("=", 1) for line in output.read_text().splitlines())

    def _value(self, text: str) -> str:
        known = {"github.action_path": str(self.package)} | {f"inputs.{name}": value for name, value in self._defaults().items()}
        return _EXPRESSION.sub(lambda match: known[match[1]], text)

    def _defaults(self) -> dict[str, str]:
        declared = {name: str(item.get("default", "")) for name, item in ACTION["inputs"].items()}
        assert set(self.inputs) <= set(declared)
        return declared | self.inputs


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    """A runner on which the action's install step has run."""
    folder = tmp_path_factory.mktemp("runner")
    job = Job(folder, package, folder, {"draft": "unused"})
    job._step(next(step for step in STEPS if step.get("id") == "install"))
    assert job.status == 0, job.log
    return folder


@pytest.fixture
def job(workspace: Path, package: Path, runner: Path) -> Job:
    for name in ("summary", "output-gate", "spec-convert.md"):
        (runner / name).unlink(missing_ok=True)
    return Job(workspace, package, runner, {"draft": "drafts/mine"})


def test_a_sound_draft_passes_with_reports_and_summary(job: Job) -> None:
    job.run(skip=("install",))
    assert (job.status, job.outputs) == (0, {"outcome": "pass", "sarif": "spec-convert.sarif", "junit": "spec-convert.junit.xml"}), job.log
    assert job.summary.startswith("## spec-convert gate: PASS")
    assert json.loads((job.workspace / "spec-convert.sarif").read_text())["version"] == "2.1.0"
    assert JUnitXml.fromfile(str(job.workspace / "spec-convert.junit.xml")).failures == 0


def test_a_wrong_draft_fails_and_the_reports_are_there(job: Job) -> None:
    config = job.workspace / "drafts/mine/config.json"
    config.write_text(config.read_text().replace('"mask_token_id": ', '"mask_token_id": 99999'))
    job.run(skip=("install",))
    assert (job.status, job.outputs["outcome"]) == (1, "fail"), job.log
    assert "## spec-convert gate: FAIL" in job.summary
    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in json.loads((job.workspace / job.outputs["sarif"]).read_text())["runs"][0]["results"]
    }
    assert "drafts/mine/config.json" in uris


def test_an_absent_draft_is_unreadable(job: Job) -> None:
    job.inputs["draft"] = "drafts/absent"
    job.run(skip=("install",))
    assert (job.status, job.outputs["outcome"]) == (3, "unreadable")
    assert "UNREADABLE" in job.summary


def test_target_policy_and_missing_evidence(job: Job) -> None:
    job.inputs |= {"target": str(TRAINED / "tiny-target"), "policy": "publish", "evidence": "one.json\ntwo.json\n", "upload-check": "true"}
    job.run(skip=("install",))
    assert (job.status, job.outputs["outcome"]) == (1, "fail")
    assert job.summary.count("the evidence file does not exist") == 2
    assert "GATE031" in job.summary


def test_a_wrong_call_is_not_a_pass(job: Job) -> None:
    job.inputs["policy"] = "absent.json"
    job.run(skip=("install",))
    assert job.status == 3
    assert job.outputs["outcome"] == "unreadable"


@pytest.mark.parametrize("name", ["$(touch owned)", "; touch owned", "`touch owned`", "--policy=default"])
def test_an_input_is_never_code_and_never_an_option(job: Job, name: str) -> None:
    job.inputs |= {"draft": name, "target": "", "evidence": name}
    job.run(skip=("install",))
    assert job.status == 3
    assert not (job.workspace / "owned").exists()


def test_every_action_is_pinned_to_a_commit() -> None:
    for path in (ROOT / "action.yml", ROOT / "examples/github/gate.yml"):
        uses = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert uses
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}|OWNER/spec-convert@COMMIT", item) for item in uses), uses


def test_the_example_workflow_uses_declared_inputs_and_outputs() -> None:
    workflow = yaml.safe_load((ROOT / "examples/github/gate.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["gate"]["steps"]
    own = next(step for step in steps if step["uses"].startswith("OWNER/"))
    assert set(own["with"]) <= set(ACTION["inputs"])
    assert all(name in ACTION["outputs"] for name in re.findall(r"steps\.gate\.outputs\.([\w-]+)", (ROOT / "examples/github/gate.yml").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("schema", "path"), [("vendor.github-actions", "action.yml"), ("vendor.github-workflows", "examples/github/gate.yml"), ("vendor.gitlab-ci", "examples/gitlab/.gitlab-ci.yml")]
)
def test_the_files_follow_the_schemas_of_their_vendors(schema: str, path: str) -> None:
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
