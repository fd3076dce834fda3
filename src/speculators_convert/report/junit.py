"""JUnit XML: one suite for the policy's requirements, one for the checks."""

from __future__ import annotations

from collections.abc import Iterator

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from speculators_convert.checks import CHECKS
from speculators_convert.gate.verdict import GateReport, Place, Reason, Requirement
from speculators_convert.report.base import Reporter, facts, path_of, placed, where


def render(gate: GateReport) -> str:
    """The XML text."""
    document = JUnitXml("spec-convert gate")
    for name, cases in (("spec-convert.policy", _requirements(gate)), ("spec-convert.checks", _checks(gate))):
        suite = TestSuite(name)
        suite.add_property("reference", gate.reference)
        suite.add_property("policy", gate.policy)
        suite.add_property("outcome", gate.outcome)
        suite.add_testcases(list(cases))
        document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return text.decode("utf-8") + "\n"


REPORTER = Reporter("junit", render)


def _requirements(gate: GateReport) -> Iterator[TestCase]:
    for requirement in gate.requirements:
        case = _case(f"{requirement.name}: {requirement.title}", "policy", gate.reference)
        if not requirement.met:
            case.result = [_failure(gate, requirement)]
        yield case


def _failure(gate: GateReport, requirement: Requirement) -> Failure:
    failure = Failure(_clean(f"{len(requirement.reasons)} reason(s), the first: {requirement.reasons[0].code} {requirement.reasons[0].message}"), requirement.name)
    failure.text = _clean("\n".join(_reason_line(gate, reason) for reason in requirement.reasons))
    return failure


def _reason_line(gate: GateReport, reason: Reason) -> str:
    file = path_of(gate, reason.file) if reason.code.startswith("DSP") and reason.file else reason.file
    return " | ".join(part for part in (f"{reason.code} {reason.message}", file, facts(reason.measured, reason.expected), f"do: {reason.hint}" if reason.hint else "") if part)


def _checks(gate: GateReport) -> Iterator[TestCase]:
    """One case for each check: failed when a finding counts, skipped when it did not run or is waived."""
    if gate.report is None:
        return
    failing, skipped, waived = gate.failing, {item.code: item.reason for item in gate.report.skipped}, {item.code: item.reason for item in gate.waived}
    for code, check in CHECKS.items():
        rows = [(finding, place) for finding, place in placed(gate) if finding.code == code]
        counted = [(finding, place) for finding, place in rows if finding in failing]
        case = _case(f"{code} {check.title}", "checks", path_of(gate, rows[0][0].file) if rows else gate.reference, rows[0][1] if rows else None)
        if counted:
            failure = Failure(_clean(counted[0][0].message), code)
            failure.text = _clean(
                "\n".join(f"{where(finding, place)}: {finding.message} | {facts(finding.measured, finding.expected)} | do: {finding.hint}" for finding, place in counted)
            )
            case.result = [failure]
        elif code in waived or code in skipped:
            case.result = [Skipped(_clean(f"waived: {waived[code]}" if code in waived else skipped[code]))]
        yield case


def _case(name: str, classname: str, file: str, place: Place | None = None) -> TestCase:
    case = TestCase(_clean(name), classname=f"spec-convert.{classname}", time=0.0)
    case._elem.set("file", _clean(file))
    if place is not None and place.line is not None:
        case._elem.set("line", str(place.line))
    return case


def _clean(text: str) -> str:
    """`text` without characters that XML 1.0 cannot hold."""
    return "".join(char for char in text if char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char >= "\U00010000")
