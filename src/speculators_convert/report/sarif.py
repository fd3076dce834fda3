"""SARIF 2.1.0 (OASIS), for code scanning. Waived findings are there as suppressed results."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from speculators_convert.checks import CHECKS
from speculators_convert.findings import Finding
from speculators_convert.gate.codes import GATE_CODES
from speculators_convert.gate.verdict import GateReport, Place, Reason, Waived
from speculators_convert.model import JsonValue, Severity, pretty_json
from speculators_convert.report.base import Reporter, facts, path_of, placed

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(gate: GateReport) -> str:
    """The SARIF log."""
    results = [*_finding_results(gate), *_reason_results(gate)]
    run = {
        "tool": {"driver": {"name": "spec-convert", "semanticVersion": gate.tool_version, "version": gate.tool_version, "rules": _rules(results)}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": gate.outcome != "unreadable", "exitCode": {"pass": 0, "fail": 1, "unreadable": 3}[gate.outcome]}],
        "automationDetails": {"id": f"spec-convert/gate/{gate.policy}/"},
        "properties": {"outcome": gate.outcome, "policy": gate.policy, "digest": gate.digest},
        "results": results,
    }
    return pretty_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


REPORTER = Reporter("sarif", render)


def _rules(results: list[dict[str, JsonValue]]) -> list[JsonValue]:
    checks = CHECKS
    rules = []
    for code in sorted({result["ruleId"] for result in results}):
        check, gate_code = checks.get(code), GATE_CODES.get(code)
        title = check.title if check else gate_code.title if gate_code else "The checkpoint can be read"
        rule: dict[str, JsonValue] = {"id": code, "shortDescription": {"text": title}}
        if check:
            rule |= {"help": {"text": check.doc, "markdown": check.doc}, "defaultConfiguration": {"level": _LEVEL[check.severity]}}
        elif gate_code:
            rule["help"] = {"text": gate_code.hint}
        rules.append(rule)
    return rules


def _finding_results(gate: GateReport) -> Iterator[dict[str, JsonValue]]:
    waivers = {(item.code, item.subject, item.message): item for item in gate.waived}
    for finding, place in placed(gate):
        result = _result(finding.code, _LEVEL[finding.severity], _message(finding.message, finding.measured, finding.expected, finding.hint), _location(gate, finding.file, place))
        result["partialFingerprints"] = {"findingId/v1": f"{finding.code}:{finding.file}:{finding.pointer or finding.subject}"}
        if waiver := waivers.get((finding.code, finding.subject, finding.message)):
            result["suppressions"] = [_suppression(waiver)]
        if logical := _logical(finding):
            result["locations"][0]["logicalLocations"] = [logical]
        yield result


def _reason_results(gate: GateReport) -> Iterator[dict[str, JsonValue]]:
    """Reasons of the gate itself; those that repeat a finding are already there."""
    for reason in gate.reasons():
        if not reason.code.startswith("DSP"):
            yield _result(reason.code, "error", _message(reason.message, reason.measured, reason.expected, reason.hint), _reason_location(gate, reason))


def _result(code: str, level: str, text: str, physical: JsonValue) -> dict[str, JsonValue]:
    return {"ruleId": code, "level": level, "message": {"text": text}, "locations": [{"physicalLocation": physical}]}


def _message(message: str, measured: str, expected: str, hint: str) -> str:
    body = f"{message}: {facts(measured, expected)}." if measured or expected else f"{message}."
    return f"{body} {hint}".strip()


def _location(gate: GateReport, file: str, place: Place | None) -> JsonValue:
    location: dict[str, JsonValue] = {"artifactLocation": {"uri": _uri(path_of(gate, file))}}
    if place is not None and place.line is not None:
        location["region"] = {"startLine": place.line}
    elif place is not None and place.byte_offset is not None:
        location["region"] = {"byteOffset": place.byte_offset, "byteLength": place.byte_length or 0}
    return location


def _reason_location(gate: GateReport, reason: Reason) -> JsonValue:
    """An evidence file stands where it was passed; anything else is about the checkpoint."""
    return {"artifactLocation": {"uri": _uri(reason.file or gate.reference)}}


def _logical(finding: Finding) -> JsonValue | None:
    if finding.pointer:
        return {"fullyQualifiedName": finding.pointer, "kind": "property"}
    return {"fullyQualifiedName": finding.subject, "kind": "member"} if finding.subject else None


def _suppression(waiver: Waived) -> JsonValue:
    return {"kind": "external", "status": "accepted", "justification": f"{waiver.reason} (until {waiver.expires})"}


def _uri(path: str) -> str:
    quoted = quote(path, errors="surrogateescape")
    return f"file://{quoted}" if path.startswith("/") else quoted
