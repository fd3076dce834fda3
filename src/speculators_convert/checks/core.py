"""The check mechanism: one small function per code, evidence by argument name, and a run in order of need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from graphlib import TopologicalSorter

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.findings import EngineVerdict, Finding, Problem, Skipped
from speculators_convert.formats import Reading
from speculators_convert.model import Severity
from speculators_convert.spec import DraftSpec, Settings
from speculators_convert.target.pairing import Pairing
from speculators_convert.target.vocabulary import VocabularyTables
from speculators_convert.values import ValueFacts

MAX_FINDINGS = 100
"""Findings listed for one code; a damaged file of many tensors would otherwise fill memory and screen."""
CheckFunction = Callable[..., Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a check may ask for, by argument name. None means that this run does not have it."""

    checkpoint: Checkpoint
    settings: Settings
    tp_degrees: tuple[int, ...]
    format_name: str | None = None
    reading: Reading | None = None
    spec: DraftSpec | None = None
    tables: VocabularyTables | None = None
    pairing: Pairing | None = None
    values: ValueFacts | None = None
    verdicts: tuple[EngineVerdict, ...] | None = None


_MISSING = {
    "reading": "the format was not recognised",
    "spec": "the format was not recognised",
    "tables": "the format was not recognised",
    "format_name": "the format was not recognised",
    "pairing": "needs --target",
    "values": "needs --deep",
    "verdicts": "the format was not recognised",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A registered check."""

    code: str
    title: str
    severity: Severity
    requires: frozenset[str]
    function: CheckFunction
    arguments: tuple[str, ...]
    doc: str
    hint: str


_REGISTRY: dict[str, Check] = {}


def check(code: str, title: str, *, severity: Severity = Severity.ERROR, requires: Iterable[str] = ()) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as the check of `code`. Its docstring has the sections that its page shows; the first sentence of "How to fix" is the hint."""

    def register(function: CheckFunction) -> CheckFunction:
        if code in _REGISTRY:
            raise ValueError(f"{code} is taken by {_REGISTRY[code].function.__name__}")
        arguments = tuple(inspect.signature(function).parameters)
        unknown = set(arguments) - {field.name for field in fields(Evidence)}
        if unknown:
            raise ValueError(f"{code} asks for unknown evidence: {sorted(unknown)}")
        doc = inspect.cleandoc(function.__doc__ or "")
        _REGISTRY[code] = Check(code, title, severity, frozenset(requires), function, arguments, doc, _section(doc, "How to fix"))
        return function

    return register


def registry() -> Mapping[str, Check]:
    """All checks by code, sorted."""
    return dict(sorted(_REGISTRY.items()))


def run(evidence: Evidence) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Run each check whose evidence is there and whose required checks found no error."""
    checks, findings, skipped = registry(), list[Finding](), list[Skipped]()
    failed: set[str] = set()
    for code in TopologicalSorter({code: item.requires for code, item in checks.items()}).static_order():
        item = checks[code]
        blocked = sorted(item.requires & failed)
        absent = [name for name in item.arguments if getattr(evidence, name) is None]
        if blocked or absent:
            skipped.append(Skipped(code=code, reason=f"{blocked[0]} found an error" if blocked else _MISSING[absent[0]]))
            if blocked:
                failed.add(code)
            continue
        number = 0
        for number, problem in enumerate(item.function(**{name: getattr(evidence, name) for name in item.arguments}), 1):
            if number <= MAX_FINDINGS:
                findings.append(_finding(item, problem))
            if (problem.severity or item.severity) is Severity.ERROR:
                failed.add(code)
        if number > MAX_FINDINGS:
            findings.append(_finding(item, Problem(f"{number - MAX_FINDINGS} more of the same", measured=number, expected=f"at most {MAX_FINDINGS} are listed")))
    findings.sort(key=lambda item: (-item.severity.rank, item.code, item.subject, item.message))
    return tuple(findings), tuple(sorted(skipped, key=lambda item: item.code))


def docstring(checks: str, why: str, fix: str, reported: str) -> str:
    """The docstring of a check that is made from a table, with the sections that all checks have."""
    return f"## What it checks\n{checks}\n\n## Why it matters\n{why}\n\n## How to fix\n{fix}\n\n## Reported in\n{reported}\n"


def _finding(item: Check, problem: Problem) -> Finding:
    return Finding(
        code=item.code,
        severity=problem.severity or item.severity,
        message=problem.message,
        subject=problem.subject,
        measured=_text(problem.measured),
        expected=_text(problem.expected),
        hint=problem.hint or item.hint,
        file=problem.file,
        pointer=problem.pointer,
    )


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 300 else text[:297] + "..."


def _section(doc: str, name: str) -> str:
    """Text of one section of a check's docstring as a single line."""
    _, _, rest = doc.partition(f"## {name}\n")
    return " ".join(rest.partition("\n## ")[0].split())
