"""The commands on real checkpoints: exit status, reports on failure too, and places that point into the real file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from junitparser import JUnitXml

from speculators_convert.checkpoint import collect
from speculators_convert.cli import main
from speculators_convert.digest import checkpoint_digest
from speculators_convert.publish.check import GateRequest, gate
from speculators_convert.report.json_ import render
from speculators_convert.results.smoke import CheckpointDigest, SmokeResult
from speculators_convert.sources import LocalSource

TRAINED = Path(__file__).parents[3] / "fixtures" / "trained"
DRAFT, TARGET = TRAINED / "tiny-bonus-reduced-vanilla", TRAINED / "tiny-target"


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def call(*arguments: object) -> Answer:
        try:
            main([str(item) for item in arguments])
            status = 0
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Answer(status, captured.out, captured.err)

    return call


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DRAFT, tmp_path / "draft"))


def digest(folder: Path) -> CheckpointDigest:
    source = LocalSource(folder)
    return checkpoint_digest(source, collect(source, payloads=()))


@pytest.fixture
def proof(tmp_path: Path, smoke: SmokeResult, draft: Path) -> Path:
    """A smoke result about the bytes of `draft` and the target: only its digests are real, its numbers are made up."""
    path = tmp_path / "smoke.json"
    path.write_text(render(smoke.model_copy(update={"checkpoint": digest(draft), "target": digest(TARGET)})))
    return path


def test_pass_is_0_and_needs_evidence_under_publish(run: Callable[..., Answer], draft: Path, proof: Path) -> None:
    assert run("gate", draft).status == 0
    assert run("gate", draft, "--target", TARGET, "--policy", "publish").status == 1
    assert run("gate", draft, "--target", TARGET, "--policy", "publish", "--evidence", proof).status == 0


def test_evidence_of_bytes_that_changed_since_is_refused(run: Callable[..., Answer], draft: Path, proof: Path) -> None:
    config = draft / "config.json"
    config.write_text(config.read_text() + "\n")
    answer = run("gate", draft, "--target", TARGET, "--policy", "publish", "--evidence", proof)
    assert answer.status == 1
    assert "GATE013  the evidence is about another draft: config.json differ" in answer.out


def test_evidence_against_another_target_is_refused(run: Callable[..., Answer], draft: Path, proof: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(TARGET, tmp_path / "target"))
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    assert "about another target" in run("gate", draft, "--target", other, "--evidence", proof).out


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "markdown"])
def test_each_report_is_written_on_each_outcome(run: Callable[..., Answer], draft: Path, tmp_path: Path, form: str) -> None:
    for reference, policy, status in ((draft, "default", 0), (draft, "publish", 1), (tmp_path / "absent", "default", 3)):
        path = tmp_path / f"report-{status}"
        answer = run("gate", reference, "--policy", policy, "--format", form, "--out", path)
        assert answer.status == status
        assert answer.out.split()[0] == {0: "PASS", 1: "FAIL", 3: "UNREADABLE"}[status]
        assert run("gate", reference, "--policy", policy, "--format", form).out == path.read_text()


def test_several_reports_of_one_run(run: Callable[..., Answer], draft: Path, tmp_path: Path) -> None:
    sarif, junit, summary = tmp_path / "a.sarif", tmp_path / "b.xml", tmp_path / "c.md"
    assert run("gate", draft, "--policy", "publish", "--format", "sarif", "--out", sarif, "--also", f"junit={junit}", "--also", f"markdown={summary}").status == 1
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert JUnitXml.fromfile(str(junit)).failures > 0
    assert summary.read_text().startswith("## spec-convert gate: FAIL")


def test_a_place_is_the_line_of_the_key_that_is_wrong(run: Callable[..., Answer], draft: Path) -> None:
    config = draft / "config.json"
    document = json.loads(config.read_text())
    document |= {"mask_token_id": "seven"}
    config.write_text(json.dumps(document, indent=2))
    report = gate(GateRequest(str(draft)))
    rows = [(finding, place) for finding, place in zip(report.report.findings if report.report else (), report.places, strict=True) if finding.pointer == "/mask_token_id"]
    assert rows
    for finding, place in rows:
        assert place is not None
        assert '"mask_token_id": "seven"' in config.read_text().splitlines()[(place.line or 0) - 1], finding
    assert run("gate", draft).status == 1


def test_a_place_in_weights_is_the_tensors_bytes(draft: Path) -> None:
    weights = draft / "model.safetensors"
    source = LocalSource(draft)
    location = collect(source).tensors["d2t"]
    data = bytearray(weights.read_bytes())
    data[location.tensor.start : location.tensor.start + 8] = (10**6).to_bytes(8, "little")
    weights.write_bytes(bytes(data))
    report = gate(GateRequest(str(draft)))
    places = {
        place.byte_offset for finding, place in zip(report.report.findings if report.report else (), report.places, strict=True) if finding.subject == "d2t" and place is not None
    }
    assert report.outcome == "fail"
    assert places == {location.tensor.start}


def test_weights_that_are_a_link_out_of_the_folder_are_no_pass(run: Callable[..., Answer], draft: Path) -> None:
    weights = draft / "model.safetensors"
    weights.unlink()
    weights.symlink_to("/proc/1/mem")
    assert run("gate", draft).status != 0


def test_an_expired_waiver_does_not_help(run: Callable[..., Answer], draft: Path, tmp_path: Path) -> None:
    config = draft / "config.json"
    document = json.loads(config.read_text())
    del document["aux_hidden_state_layer_ids"]
    config.write_text(json.dumps(document))
    codes = sorted({item.code for item in gate(GateRequest(str(draft))).failing})
    assert codes
    skipped = sorted({item.code for item in (gate(GateRequest(str(draft))).report or pytest.fail("no report")).skipped if item.reason != "needs --target"})
    waivers = [{"code": code, "reason": "known, see ticket 12", "expires": "2026-06-30"} for code in (*codes, *skipped)]
    policy = tmp_path / "team.json"
    policy.write_text(json.dumps({"name": "team", "waivers": waivers}))
    assert gate(GateRequest(str(draft), policy=str(policy), today=date(2026, 6, 30))).outcome == "pass"
    assert gate(GateRequest(str(draft), policy=str(policy), today=date(2026, 7, 1))).outcome == "fail"


def test_a_wrong_policy_is_a_usage_error(run: Callable[..., Answer], draft: Path, tmp_path: Path) -> None:
    policy = tmp_path / "team.json"
    policy.write_text('{"name": "team", "fail_on": "fatal"}')
    answer = run("gate", draft, "--policy", policy)
    assert (answer.status, answer.out) == (2, "")
    assert "/fail_on" in answer.err
    assert run("gate", draft, "--policy", tmp_path / "absent.json").status == 3


@pytest.mark.parametrize("pair", ["sarif", "xml=a", "sarif="])
def test_a_wrong_further_report_is_a_usage_error(run: Callable[..., Answer], draft: Path, pair: str) -> None:
    assert run("gate", draft, "--also", pair).status == 2


def test_a_report_that_cannot_be_written_is_not_a_pass(run: Callable[..., Answer], draft: Path, tmp_path: Path) -> None:
    assert run("gate", draft, "--out", tmp_path / "absent" / "x.json").status == 3


def test_verify_sees_one_changed_byte(run: Callable[..., Answer], draft: Path, tmp_path: Path) -> None:
    out = tmp_path / "written"
    assert run("normalize", draft, "--layout", "speculators", "--out", out).status == 0
    assert run("verify", out).status == 0
    (out / "README.md").write_text("a card that came later\n")
    assert run("verify", out).status == 0
    weights = out / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    changed = run("verify", out)
    assert changed.status == 1
    assert "model.safetensors: the file was changed after the rewrite" in changed.out
    assert run("gate", out).status == 1
    assert "GATE021" in run("gate", out).out
    assert run("verify", draft).status == 3


def test_publish_check_and_the_card(run: Callable[..., Answer], draft: Path, proof: Path) -> None:
    options = ("--target", TARGET, "--evidence", proof, "--card", "--repo", "org/draft")
    first = run("publish-check", draft, *options)
    assert first.status == 1
    assert "GATE031" in first.out
    assert not (draft / "README.md").exists()
    (draft / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: org/target\n---\n# Draft\n")
    second = run("publish-check", draft, *options)
    assert (second.status, "hf upload org/draft" in second.err) == (0, True)
    card = (draft / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0")
    assert "| reference | eager | 1 | 2.50 |" in card
    assert str(draft) not in card
    run("publish-check", draft, *options)
    assert (draft / "README.md").read_text() == card
    (draft / "optimizer.pt").write_bytes(b"x")
    assert run("publish-check", draft, *options).status == 1


def test_explain(run: Callable[..., Answer]) -> None:
    assert "## How to fix" in run("explain", "dsp105").out
    assert "GATE013 (gate): Evidence is about these bytes" in run("explain", "GATE013").out
    wrong = run("explain", "DSP999")
    assert (wrong.status, "one of" in wrong.err) == (2, True)
    assert len(json.loads(run("explain", "--format", "json").out)["codes"]) > 100
