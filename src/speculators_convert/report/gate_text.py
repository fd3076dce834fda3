"""The gate's answer as plain text: each requirement, and under it why it is not met."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.gate.verdict import GateReport, Reason
from speculators_convert.report.base import OUTCOME_WORDS, Reporter, facts, path_of, placed, printable, where


def render(gate: GateReport) -> str:
    """The text, safe for a terminal whatever the checkpoint says."""
    return "\n".join(_lines(printable(gate))) + "\n"


REPORTER = Reporter("text", render)


def _lines(gate: GateReport) -> Iterator[str]:
    yield f"{OUTCOME_WORDS[gate.outcome]}  {gate.reference}  policy {gate.policy}"
    for requirement in gate.requirements:
        yield f"  {'ok  ' if requirement.met else 'FAIL'}  {requirement.title}" + (f": {requirement.measured}" if requirement.measured else "")
        for reason in requirement.reasons:
            yield from _reason(gate, reason)
    for item in gate.waived:
        yield f"  waived {item.code} until {item.expires}: {item.message} ({item.reason})"
    for note in gate.notes:
        yield f"  note: {note}"


def _reason(gate: GateReport, reason: Reason) -> Iterator[str]:
    yield f"        {reason.code}  {reason.message}"
    rows = {"where": _where(gate, reason), "what": facts(reason.measured, reason.expected), "do": reason.hint}
    yield from (f"                 {name:<6}{value}" for name, value in rows.items() if value)


def _where(gate: GateReport, reason: Reason) -> str:
    for finding, place in placed(gate):
        if (finding.code, finding.message) == (reason.code, reason.message) and finding.file:
            return where(finding, place) if place else path_of(gate, where(finding, place))
    return reason.file
