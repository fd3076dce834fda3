"""`decide`: a report, evidence, a receipt and a policy to one verdict. Pure, and closed: what was not looked at never passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from speculators_convert.errors import SpecConvertError
from speculators_convert.findings import EngineVerdict, Finding, Report, Skipped
from speculators_convert.gate.codes import GATE_CODES, reason
from speculators_convert.gate.evidence import judge_evidence
from speculators_convert.gate.evidence_files import EvidenceFile
from speculators_convert.gate.verdict import Acceptance, GateReport, Reason, Requirement, Waived
from speculators_convert.policies import EngineRule, GatePolicy, Waiver
from speculators_convert.results.smoke import CheckpointDigest
from speculators_convert.version import __version__

NEEDS_TARGET = "needs --target"


@dataclass(frozen=True, slots=True)
class ReceiptState:
    """Whether the folder has a receipt, and what in the folder contradicts it."""

    present: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """All that one decision is made of. Digests are there when evidence is compared with them."""

    reference: str
    report: Report
    today: date
    target: str | None = None
    digest: CheckpointDigest | None = None
    target_digest: CheckpointDigest | None = None
    evidence: tuple[EvidenceFile, ...] = ()
    receipt: ReceiptState = ReceiptState(present=False)
    folder: tuple[Requirement, ...] = ()


def decide(case: Case, policy: GatePolicy) -> GateReport:
    """The verdict; each requirement of the policy is listed, met or not."""
    failing, waived = _judge_findings(case, policy)
    skipped, excused = _judge_skipped(case, policy)
    evidence, acceptance = judge_evidence(case.evidence, case.digest, case.target_digest, policy.evidence, case.today)
    requirements = (
        _requirement("format", "GATE002", _format_reasons(case.report), case.report.format.title),
        _requirement(
            "findings", "", [_finding_reason(item, policy, case.today) for item in failing], _count(case.report), title=f"No finding of severity {policy.fail_on.value} or higher"
        ),
        _requirement("looked-at", "GATE003", list(_skip_reasons(skipped)), _ran(case, skipped)),
        _requirement("target", "GATE004", _target_reasons(case, policy), case.target or _absent(required=policy.target == "required")),
        _requirement("tp-degrees", "GATE005", list(_degree_reasons(case.report, policy)), ", ".join(map(str, policy.tp_degrees)) or "none required"),
        _requirement(
            "engines",
            "GATE006",
            [reason for rule in policy.engines for reason in _engine_reasons(case.report, rule)],
            ", ".join(rule.engine for rule in policy.engines) or "none required",
        ),
        _requirement("evidence", "", evidence, _evidence_measured(acceptance, policy), title="Smoke evidence of these bytes holds"),
        _requirement("receipt", "GATE021", list(_receipt_reasons(case.receipt, policy)), "verified" if case.receipt.present else _absent(required=policy.receipt == "required")),
        *case.folder,
    )
    return GateReport(
        tool_version=__version__,
        outcome="pass" if all(item.met for item in requirements) else "fail",
        policy=policy.name,
        reference=case.reference,
        digest=case.digest.digest if case.digest else "",
        requirements=requirements,
        failing=tuple(failing),
        waived=(*waived, *excused),
        acceptance=tuple(acceptance),
        notes=tuple(_notes(case, policy, {item.code for item in (*waived, *excused)})),
        report=case.report,
    )


def unreadable(reference: str, policy: str, error: SpecConvertError) -> GateReport:
    """The answer for a checkpoint that could not be looked at."""
    reason = Reason(
        code=error.code, message=error.what, measured=_text(error.measured), expected=_text(error.expected), hint=error.hint or GATE_CODES["GATE001"].hint, file=error.where
    )
    requirement = Requirement(name="readable", title=GATE_CODES["GATE001"].title, met=False, reasons=(reason,))
    return GateReport(tool_version=__version__, outcome="unreadable", policy=policy, reference=reference, requirements=(requirement,))


def _requirement(name: str, code: str, reasons: Iterable[Reason], measured: str, *, title: str = "") -> Requirement:
    found = tuple(reasons)
    return Requirement(name=name, title=title or GATE_CODES[code].title, met=not found, measured=measured, reasons=found)


def _covers(waiver: Waiver, code: str, subject: str) -> bool:
    return waiver.code == code and waiver.subject in ("", subject)


def _valid_waiver(policy: GatePolicy, code: str, subject: str, today: date) -> Waiver | None:
    return next((item for item in policy.waivers if _covers(item, code, subject) and item.expires >= today), None)


def _judge_findings(case: Case, policy: GatePolicy) -> tuple[list[Finding], list[Waived]]:
    """Findings that fail, and findings that would if they were not waived."""
    failing, waived = [], []
    for finding in case.report.findings:
        if finding.severity.rank < policy.fail_on.rank:
            continue
        waiver = _valid_waiver(policy, finding.code, finding.subject, case.today)
        if waiver is None:
            failing.append(finding)
        else:
            waived.append(_waived(waiver, finding.subject, finding.message, finding.file, finding.pointer))
    return failing, waived


def _judge_skipped(case: Case, policy: GatePolicy) -> tuple[list[Skipped], list[Waived]]:
    """Skipped checks that fail, and those that a waiver covers. Without a required target, checks that need one may be skipped."""
    failing, waived = [], []
    for item in case.report.skipped:
        if item.reason == NEEDS_TARGET and case.target is None:
            continue  # the target requirement speaks for them
        waiver = _valid_waiver(policy, item.code, "", case.today)
        if waiver is None:
            failing.append(item)
        else:
            waived.append(_waived(waiver, "", f"not run: {item.reason}", "", ""))
    return failing, waived


def _waived(waiver: Waiver, subject: str, message: str, file: str, pointer: str) -> Waived:
    return Waived(code=waiver.code, subject=subject, message=message, reason=waiver.reason, expires=waiver.expires.isoformat(), file=file, pointer=pointer)


def _format_reasons(report: Report) -> list[Reason]:
    if report.spec is not None:
        return []
    return [reason("GATE002", "the format was not recognised, so the draft was not looked at", measured="; ".join(report.format.why)[:300])]


def _finding_reason(finding: Finding, policy: GatePolicy, today: date) -> Reason:
    expired = next((item for item in policy.waivers if _covers(item, finding.code, finding.subject) and item.expires < today), None)
    hint = finding.hint if expired is None else f"{finding.hint} (its waiver expired on {expired.expires.isoformat()})"
    return Reason(code=finding.code, message=finding.message, measured=finding.measured, expected=finding.expected, hint=hint, file=finding.file)


def _skip_reasons(skipped: list[Skipped]) -> Iterator[Reason]:
    """One reason for each cause, so that one error does not give twenty lines."""
    by_cause: dict[str, list[str]] = {}
    for item in skipped:
        by_cause.setdefault(item.reason, []).append(item.code)
    for cause, codes in by_cause.items():
        yield reason("GATE003", f"not run: {', '.join(codes)}", measured=cause, expected="each check of the tool runs")


def _target_reasons(case: Case, policy: GatePolicy) -> list[Reason]:
    if policy.target == "optional" or case.target is not None:
        return []
    count = sum(item.reason == NEEDS_TARGET for item in case.report.skipped)
    return [reason("GATE004", f"the policy asks for the target, and {count} checks did not run without it", measured="no --target", expected="--target REF")]


def _degree_reasons(report: Report, policy: GatePolicy) -> Iterator[Reason]:
    checked = report.size.per_rank_bytes if report.size else {}
    for degree in policy.tp_degrees:
        if str(degree) not in checked:
            yield reason("GATE005", f"TP {degree} was not checked", measured=", ".join(checked) or "no degree", expected=degree)


def _engine_reasons(report: Report, rule: EngineRule) -> Iterator[Reason]:
    wanted = f"{rule.engine} {rule.version or ''}".strip()
    found = [item for item in report.engines if item.engine.casefold() == rule.engine.casefold() and rule.version in (None, item.version)]
    if not found:
        known = ", ".join(f"{item.engine} {item.version}" for item in report.engines)
        yield reason("GATE006", f"there is no verdict for {wanted}", measured=known or "no verdicts", expected=" or ".join(rule.verdicts))
    yield from (_engine_reason(item, rule) for item in found if item.verdict not in rule.verdicts)


def _engine_reason(item: EngineVerdict, rule: EngineRule) -> Reason:
    return reason("GATE006", f"{item.engine} {item.version}: {'; '.join(item.reasons) or item.verdict}", measured=item.verdict, expected=" or ".join(rule.verdicts))


def _receipt_reasons(receipt: ReceiptState, policy: GatePolicy) -> Iterator[Reason]:
    if not receipt.present and policy.receipt == "required":
        yield reason("GATE020", "the folder has no receipt", measured="none", expected="spec-convert.receipt.json")
    for problem in receipt.problems:
        yield reason("GATE021", problem)


def _evidence_measured(acceptance: list[Acceptance], policy: GatePolicy) -> str:
    if not acceptance:
        return _absent(required=policy.evidence.required)
    return "; ".join(f"{item.engine} {item.mode} TP {item.tp}: acceptance length {item.acceptance_length:.2f}, {item.exact} of {item.total} exact" for item in acceptance)


def _ran(case: Case, skipped: list[Skipped]) -> str:
    """How many checks did not run, and for what."""
    for_target = sum(item.reason == NEEDS_TARGET and case.target is None for item in case.report.skipped)
    parts = [f"{len(skipped)} did not run" if skipped else "", f"{for_target} need a target and wait for one" if for_target else ""]
    return "; ".join(part for part in parts if part) or "all checks ran"


def _absent(*, required: bool) -> str:
    return "none" if required else "none, and none is required"


def _count(report: Report) -> str:
    counts: dict[str, int] = {}
    for finding in report.findings:
        counts[finding.severity.value] = counts.get(finding.severity.value, 0) + 1
    return ", ".join(f"{counts[name]} {name}" for name in ("error", "warning", "info") if name in counts) or "no findings"


def _notes(case: Case, policy: GatePolicy, used: set[str]) -> Iterator[str]:
    if policy.target == "optional" and case.target is None and (count := sum(item.reason == NEEDS_TARGET for item in case.report.skipped)):
        yield f"{count} checks need the target and did not run: pass --target"
    if any(item.result for item in case.evidence) and case.target_digest is None:
        yield "the evidence's target was not compared: pass --target"
    for waiver in policy.waivers:
        if waiver.code not in used:
            state = "expired on" if waiver.expires < case.today else "covers nothing, although valid to"
            yield f"the waiver of {waiver.code} {state} {waiver.expires.isoformat()}: remove it"


def _text(value: object) -> str:
    return "" if value is None else str(value)
