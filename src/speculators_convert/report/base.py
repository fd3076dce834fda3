"""What a reporter offers, and words that reporters share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from speculators_convert.findings import Finding
from speculators_convert.gate.verdict import GateReport, Place
from speculators_convert.model import JsonValue, Model
from speculators_convert.model import printable as printable_text

_M = TypeVar("_M", bound=Model)
OUTCOME_WORDS = {"pass": "PASS", "fail": "FAIL", "unreadable": "UNREADABLE"}


@dataclass(frozen=True, slots=True)
class Reporter:
    """One `--format`: its name, and the function from answer to text."""

    name: str
    render: Callable[[GateReport], str]


def path_of(gate: GateReport, file: str) -> str:
    """A checkpoint file as a path from where the tool was called."""
    return f"{gate.reference.rstrip('/')}/{file}" if file else gate.reference


def placed(gate: GateReport) -> Iterator[tuple[Finding, Place | None]]:
    """Each finding with the place where it stands."""
    findings = gate.report.findings if gate.report else ()
    places = gate.places or (None,) * len(findings)
    yield from zip(findings, places, strict=True)


def where(finding: Finding, place: Place | None) -> str:
    """`file:line`, `file#pointer` or `file`, as far as it is known."""
    if place is not None and place.line is not None:
        return f"{place.file}:{place.line}"
    return finding.file + (f"#{finding.pointer}" if finding.pointer else "")


def facts(measured: str, expected: str) -> str:
    """`measured X, expected Y` with what is there."""
    return ", ".join(part for part in (f"measured {measured}" if measured else "", f"expected {expected}" if expected else "") if part)


def printable(value: _M) -> _M:
    """The same value with control characters and direction marks escaped in each text: a checkpoint must not steer the terminal."""
    return type(value).model_validate(_escaped(value.model_dump()))


def _escaped(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return printable_text(value, lines=True)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return tuple(_escaped(item) for item in value) if isinstance(value, (tuple, list)) else value
