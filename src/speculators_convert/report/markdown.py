"""Markdown for a job summary or a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.gate.verdict import GateReport
from speculators_convert.report.base import OUTCOME_WORDS, Reporter, facts, path_of, placed, where


def render(gate: GateReport) -> str:
    """The Markdown text."""
    return "\n".join(_lines(gate)).rstrip("\n") + "\n"


REPORTER = Reporter("markdown", render)


def _lines(gate: GateReport) -> Iterator[str]:
    yield f"## spec-convert gate: {OUTCOME_WORDS[gate.outcome]}"
    yield ""
    yield f"`{_code(gate.reference)}` against policy `{_code(gate.policy)}`, spec-convert {gate.tool_version}"
    yield ""
    yield from _requirements(gate)
    yield from _findings(gate)
    yield from _waived(gate)
    yield from _engines(gate)
    for note in gate.notes:
        yield f"> {cell(note)}"


def _requirements(gate: GateReport) -> Iterator[str]:
    yield "| | Requirement | Measured |"
    yield "|---|---|---|"
    for requirement in gate.requirements:
        yield f"| {'pass' if requirement.met else '**FAIL**'} | {cell(requirement.title)} | {cell(requirement.measured)} |"
    yield ""
    reasons = [reason for reason in gate.reasons() if not reason.code.startswith("DSP")]
    for reason in reasons:
        text = "; ".join(part for part in (reason.message, reason.file, facts(reason.measured, reason.expected)) if part)
        yield f"- **{reason.code}** {cell(text)}. {cell(reason.hint)}"
    if reasons:
        yield ""


def _findings(gate: GateReport) -> Iterator[str]:
    rows = list(placed(gate))
    if not rows:
        return
    yield f"### Findings ({len(rows)})"
    yield ""
    yield "| Code | Severity | Where | What | Measured | Expected | Do |"
    yield "|---|---|---|---|---|---|---|"
    for finding, place in rows:
        location = where(finding, place) if place or not finding.file else path_of(gate, where(finding, place))
        yield "| " + " | ".join(cell(item) for item in (finding.code, finding.severity.value, location, finding.message, finding.measured, finding.expected, finding.hint)) + " |"
    yield ""


def _waived(gate: GateReport) -> Iterator[str]:
    if not gate.waived:
        return
    yield "### Waived"
    yield ""
    for item in gate.waived:
        yield f"- {item.code} {cell(item.message)}: {cell(item.reason)} (until {item.expires})"
    yield ""


def _engines(gate: GateReport) -> Iterator[str]:
    engines = gate.report.engines if gate.report else ()
    if not engines:
        return
    yield "### Engines"
    yield ""
    yield "| Engine | Verdict | Why |"
    yield "|---|---|---|"
    for item in engines:
        yield f"| {cell(item.engine)} {cell(item.version)} | {item.verdict} | {cell('; '.join(item.reasons))} |"
    yield ""


def cell(text: str) -> str:
    """Text that cannot leave its table cell nor turn into markup."""
    flat = " ".join(text.split())
    for char in "\\`*_[]<>|":
        flat = flat.replace(char, f"\\{char}" if char not in "<>" else {"<": "&lt;", ">": "&gt;"}[char])
    return flat


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")
