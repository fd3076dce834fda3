"""Each reporter renders each outcome; SARIF and JUnit follow their own schemas, and places point into the file that is wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml

from speculators_convert.errors import SourceError
from speculators_convert.findings import Finding
from speculators_convert.gate.decision import Case, decide, unreadable
from speculators_convert.gate.verdict import GateReport, Place
from speculators_convert.policies import Waiver, load_policy
from speculators_convert.report import reporters

SARIF_SCHEMA = json.loads((Path(__file__).parents[2] / "data/sarif/sarif-2.1.0.json").read_text(encoding="utf-8"))
PUBLISH = load_policy("publish")
NASTY = "a|b `c` <img src=x> [x](y) \x1b[31m \x00 ]]> &amp; \ud83d\ude00 \n| d"


def _validate_sarif(text: str) -> dict[str, object]:
    document = json.loads(text)
    jsonschema.Draft202012Validator(SARIF_SCHEMA, format_checker=jsonschema.FormatChecker()).validate(document)
    run: dict[str, object] = document["runs"][0]
    return run


@pytest.fixture
def failing(case: Case, finding: Finding, warning: Finding) -> GateReport:
    wrong = replace(case, report=case.report.model_copy(update={"findings": (finding, warning)}), evidence=())
    places = (Place(file="drafts/one/model.safetensors", byte_offset=400, byte_length=256), Place(file="drafts/one/config.json", line=3))
    return decide(wrong, PUBLISH).model_copy(update={"places": places})


@pytest.fixture
def answers(case: Case, failing: GateReport) -> dict[str, GateReport]:
    return {"pass": decide(case, PUBLISH), "fail": failing, "unreadable": unreadable("nowhere", "publish", SourceError("no such folder", where="nowhere"))}


def test_the_formats_are_the_ones_that_are_documented() -> None:
    assert sorted(reporters()) == ["json", "junit", "markdown", "sarif", "text"]


@pytest.mark.parametrize("outcome", ["pass", "fail", "unreadable"])
def test_sarif_follows_its_schema(answers: dict[str, GateReport], outcome: str) -> None:
    run = _validate_sarif(reporters()["sarif"].render(answers[outcome]))
    assert bool(run["results"]) == (outcome != "pass")


def test_the_sarif_schema_refuses_a_wrong_log(failing: GateReport) -> None:
    document = json.loads(reporters()["sarif"].render(failing))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        _validate_sarif(json.dumps(document))


def test_sarif_locations_point_into_the_file_that_is_wrong(failing: GateReport) -> None:
    results = {item["ruleId"]: item for item in json.loads(reporters()["sarif"].render(failing))["runs"][0]["results"]}
    places = {code: item["locations"][0]["physicalLocation"] for code, item in results.items()}
    assert places["DSP105"] == {"artifactLocation": {"uri": "drafts/one/model.safetensors"}, "region": {"byteOffset": 400, "byteLength": 256}}
    assert places["DSP230"] == {"artifactLocation": {"uri": "drafts/one/config.json"}, "region": {"startLine": 3}}
    assert places["GATE010"] == {"artifactLocation": {"uri": "drafts/one"}}
    assert results["DSP105"]["level"] == "error"
    assert results["DSP230"]["level"] == "warning"


def test_each_sarif_result_has_a_rule(failing: GateReport) -> None:
    run = json.loads(reporters()["sarif"].render(failing))["runs"][0]
    assert {item["ruleId"] for item in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}


def test_a_waived_finding_is_suppressed_with_its_reason(case: Case, finding: Finding) -> None:
    waiver = Waiver.model_validate({"code": "DSP105", "reason": "agreed with the trainers", "expires": "2026-12-31"})
    gate = decide(replace(case, report=case.report.model_copy(update={"findings": (finding,)})), PUBLISH.model_copy(update={"waivers": (waiver,)}))
    run = _validate_sarif(reporters()["sarif"].render(gate))
    assert run["results"][0]["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "agreed with the trainers (until 2026-12-31)"}]  # type: ignore[index]
    assert "agreed with the trainers" in reporters()["markdown"].render(gate)


@pytest.mark.parametrize("outcome", ["pass", "fail", "unreadable"])
def test_junit_is_read_back_by_junitparser(answers: dict[str, GateReport], outcome: str) -> None:
    document = JUnitXml.fromfile(io.BytesIO(reporters()["junit"].render(answers[outcome]).encode()))
    assert (document.failures > 0) == (outcome != "pass")
    assert document.errors == 0
    assert document.tests == sum(suite.tests for suite in document)


def test_junit_has_a_case_for_each_requirement_and_each_check(failing: GateReport) -> None:
    suites = {suite.name: suite for suite in JUnitXml.fromfile(io.BytesIO(reporters()["junit"].render(failing).encode()))}
    policy = {case.name.partition(":")[0]: case for case in suites["spec-convert.policy"]}
    assert {name for name, case in policy.items() if case.result} == {"findings", "evidence"}
    checks = {case.name.partition(" ")[0]: case for case in suites["spec-convert.checks"]}
    assert [code for code, case in checks.items() if case.result] == ["DSP105"]
    assert checks["DSP105"]._elem.get("file") == "drafts/one/model.safetensors"
    assert "expected < 64" in checks["DSP105"].result[0].text


def test_json_follows_its_schema(answers: dict[str, GateReport]) -> None:
    schema = GateReport.model_json_schema(mode="serialization")
    for gate in answers.values():
        document = json.loads(reporters()["json"].render(gate))
        jsonschema.validate(document, schema)
        assert GateReport.model_validate(document) == gate


def test_markdown_shows_verdict_requirements_findings_and_places(failing: GateReport) -> None:
    text = reporters()["markdown"].render(failing)
    assert text.startswith("## spec-convert gate: FAIL\n")
    assert "drafts/one/config.json:3" in text
    assert "**GATE010**" in text
    assert "| vllm 0.33.0 | loads |" in text


def test_markdown_cells_stay_in_their_row(case: Case, finding: Finding) -> None:
    nasty = finding.model_copy(update={"message": NASTY, "measured": NASTY})
    text = reporters()["markdown"].render(decide(replace(case, report=case.report.model_copy(update={"findings": (nasty,)})), PUBLISH))
    row = next(line for line in text.splitlines() if line.startswith("| DSP105"))
    assert row.replace("\\|", "").count("|") == 8
    assert "<img" not in text


def test_text_says_why_where_and_what_to_do(failing: GateReport) -> None:
    text = reporters()["text"].render(failing)
    assert text.startswith("FAIL  drafts/one")
    for part in ("DSP105  3 ids leave the target vocabulary", "measured 67, expected < 64", "Save d2t again.", "GATE010"):
        assert part in text


@given(st.text(max_size=60))
def test_any_text_in_a_finding_keeps_each_format_well_formed(text: str) -> None:
    finding = Finding.model_validate(
        {"code": "DSP105", "severity": "error", "message": text, "subject": text, "measured": text, "expected": text, "hint": text, "file": "config.json", "pointer": "/a"}
    )
    gate = _gate_with(finding)
    JUnitXml.fromfile(io.BytesIO(reporters()["junit"].render(gate).encode()))
    _validate_sarif(reporters()["sarif"].render(gate))
    json.loads(reporters()["json"].render(gate))
    rows = [line for line in reporters()["markdown"].render(gate).splitlines() if line.startswith("| DSP105")]
    assert len(rows) == 1
    assert "\x1b" not in reporters()["text"].render(gate)


def _gate_with(finding: Finding) -> GateReport:
    from speculators_convert.findings import FormatInfo, Report, SourceInfo  # noqa: PLC0415
    from speculators_convert.gate.codes import reason  # noqa: PLC0415
    from speculators_convert.gate.verdict import Requirement  # noqa: PLC0415

    source = SourceInfo(kind="local", name="d", revision=None, files=(), total_bytes=0)
    report = Report(
        tool_version="0", source=source, format=FormatInfo(name="x", title="x", why=()), spec=None, geometry=(), tensors=(), size=None, findings=(finding,), skipped=(), engines=()
    )
    requirement = Requirement(name="evidence", title="t", met=False, reasons=(reason("GATE010", finding.message, measured=finding.message),))
    return GateReport(tool_version="0", outcome="fail", policy="p", reference="d", requirements=(requirement,), failing=(finding,), report=report)


def test_reporters_need_the_core_install_only() -> None:
    code = "import sys\nfrom speculators_convert.report import reporters\nreporters()\nprint([name for name in ('torch', 'transformers', 'sglang') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.fixture
def render_all() -> Callable[[GateReport], dict[str, str]]:
    return lambda gate: {name: item.render(gate) for name, item in reporters().items()}


def test_the_same_answer_gives_the_same_text(failing: GateReport, render_all: Callable[[GateReport], dict[str, str]]) -> None:
    assert render_all(failing) == render_all(failing)
