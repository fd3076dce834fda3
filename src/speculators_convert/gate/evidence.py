"""Evidence against a policy: missing, unreadable, stale, foreign, failed, or accepted. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime

from speculators_convert.gate.codes import reason
from speculators_convert.gate.evidence_files import EvidenceFile
from speculators_convert.gate.verdict import Acceptance, Reason
from speculators_convert.model import canonical_json, sha256_hex
from speculators_convert.policies import EvidenceRule
from speculators_convert.results.smoke import CheckpointDigest, Equivalence, ModeResult, SmokeResult
from speculators_convert.version import __version__

_FAULT_CODES = {"missing": "GATE010", "unreadable": "GATE011", "schema": "GATE012"}


def judge_evidence(
    files: Sequence[EvidenceFile], digest: CheckpointDigest | None, target: CheckpointDigest | None, rule: EvidenceRule, today: date
) -> tuple[list[Reason], list[Acceptance]]:
    """Why the evidence does not satisfy the rule, and what the accepted part measured."""
    reasons, accepted = list[Reason](), list[Acceptance]()
    for file in files:
        found = list(_file_reasons(file, digest, target, rule, today))
        reasons += found
        if not found and file.result is not None:
            accepted += [_acceptance(file, file.result, mode) for mode in file.result.modes]
    if rule.required and not files:
        reasons.append(reason("GATE010", "the policy asks for smoke evidence and none was passed", measured="none", expected="--evidence FILE"))
    if files and not reasons:
        reasons += _coverage_reasons(accepted, rule)
    return reasons, accepted


def _file_reasons(file: EvidenceFile, digest: CheckpointDigest | None, target: CheckpointDigest | None, rule: EvidenceRule, today: date) -> Iterator[Reason]:
    if file.fault is not None:
        yield reason(_FAULT_CODES[file.fault.kind], file.fault.message, measured=file.fault.measured, expected=file.fault.expected, file=file.path)
        return
    result = file.result
    assert result is not None  # noqa: S101 (one of the two is there by construction)
    for code, message, measured, expected in (*_foreign(result, digest, target), *_stale(result, rule, today), *_failed(result, rule)):
        yield reason(code, message, measured=measured, expected=expected, file=file.path)


Row = tuple[str, str, object, object]
"""Code, message, measured, expected."""


def _foreign(result: SmokeResult, digest: CheckpointDigest | None, target: CheckpointDigest | None) -> Iterator[Row]:
    for name, stated, own in (("draft", result.checkpoint, digest), ("target", result.target, target)):
        if stated is None:
            continue  # a run that was not made has no target; its verdict says so
        if sha256_hex(canonical_json(stated.files)) != stated.digest:
            yield "GATE017", f"the digest of the {name} does not follow from its files", stated.digest[:16], sha256_hex(canonical_json(stated.files))[:16]
        elif own is not None and stated.digest != own.digest:
            changed = sorted(path for path in stated.files.keys() | own.files.keys() if stated.files.get(path) != own.files.get(path))
            yield "GATE013", f"the evidence is about another {name}: {', '.join(changed[:4])} differ", stated.digest[:16], own.digest[:16]
    if digest is None:
        yield "GATE013", "the checkpoint's own digest is not known, so the evidence cannot be compared", "none", result.checkpoint.digest[:16]
    if stated_facts := result.parameters.get("settings"):
        yield "GATE013", "the run was given facts that the files do not state", canonical_json(stated_facts).decode()[:200], "a run of the files as they are"


def _stale(result: SmokeResult, rule: EvidenceRule, today: date) -> Iterator[Row]:
    if rule.tool == "same-minor" and _minor(result.tool_version) != _minor(__version__):
        yield "GATE012", "the evidence was made by another version of the tool", result.tool_version, f"{_minor(__version__)}.x"
    if rule.max_age_days is None:
        return
    made = _day(result.environment.get("created", ""))
    if made is None:
        yield "GATE012", "the evidence does not say when it was made", "no created time", f"at most {rule.max_age_days} days old"
    elif not 0 <= (today - made).days <= rule.max_age_days:
        yield "GATE012", "the evidence is too old", f"made on {made.isoformat()}", f"at most {rule.max_age_days} days before {today.isoformat()}"


def _failed(result: SmokeResult, rule: EvidenceRule) -> Iterator[Row]:
    if result.verdict != "pass":
        what = "was not made" if result.verdict == "not-run" else "did not pass"
        yield "GATE014", f"the smoke run {what}: {'; '.join(result.reasons)[:200]}", result.verdict, "pass"
    for comparison in result.comparisons:
        if not comparison.holds:
            yield "GATE014", f"a claim of the run does not hold: {comparison.name}", comparison.measured, comparison.expected
    if result.verdict == "pass" and result.target is None:
        yield "GATE017", "a run that passed names no target", "none", "the target's digest"
    if not result.modes:
        yield "GATE014", "no mode ran", "0 modes", "at least one"
    yield from _differing(result, rule)
    for mode in result.modes:
        yield from _mode_failed(mode.name, mode, rule)


def _differing(result: SmokeResult, rule: EvidenceRule) -> Iterator[Row]:
    """Greedy modes against target-only greedy; sampled modes against the target's distribution."""
    if rule.equivalence == "any":
        return
    greedy = [mode for mode in result.modes if mode.temperature == 0]
    if result.modes and not greedy:
        yield "GATE015", "no greedy run was compared with the target's own output", "sampled runs only", "at least one greedy run"
    for mode in greedy:
        ties = next((item.ties for item in result.equivalence if _judges(item, mode) and item.defects == 0), 0)
        allowed = ties if rule.equivalence == "ties" else 0
        if mode.exact + allowed < mode.total:
            measured, expected = f"{mode.exact} of {mode.total} exact, {ties} ties", f"{mode.total} of {mode.total} exact{' or ties' if rule.equivalence == 'ties' else ''}"
            yield "GATE015", f"{mode.name}: drafted output differs from the target's own", measured, expected
    for mode in result.modes:
        judged = [item for item in result.sampled if (item.mode, item.tp, item.concurrency, item.temperature) == (mode.mode, mode.tp, mode.concurrency, mode.temperature)]
        if mode.temperature > 0 and not any(item.p_value >= item.level for item in judged):
            yield (
                "GATE015",
                f"{mode.name}: sampled output was not shown to follow the target's distribution",
                ", ".join(f"p {item.p_value:.2g}" for item in judged) or "no test",
                "p at least the test's level",
            )


def _judges(item: Equivalence, mode: ModeResult) -> bool:
    """Whether `item` compares this very run with ordinary decoding."""
    return item.against == "plain" and (item.mode, item.tp, item.concurrency) == (mode.mode, mode.tp, mode.concurrency)


def _mode_failed(name: str, mode: ModeResult, rule: EvidenceRule) -> Iterator[Row]:
    if (len(mode.outcomes), sum(item.exact for item in mode.outcomes)) != (mode.total, mode.exact):
        yield (
            "GATE017",
            f"{name}: the counts do not follow from the prompts",
            f"{mode.exact} of {mode.total}",
            f"{sum(item.exact for item in mode.outcomes)} of {len(mode.outcomes)}",
        )
    if mode.total < rule.min_prompts:
        yield "GATE018", f"{name}: too few prompts ran", mode.total, f"at least {rule.min_prompts}"
    if mode.verify_steps < 1 or mode.drafted_tokens < 1:
        yield "GATE014", f"{name}: nothing was drafted", f"{mode.verify_steps} verify steps, {mode.drafted_tokens} drafted tokens", "at least one"
    if rule.min_acceptance_length is not None and not mode.acceptance_length >= rule.min_acceptance_length:
        yield "GATE016", f"{name}: the acceptance length is too low", f"{mode.acceptance_length:.3f}", f"at least {rule.min_acceptance_length}"


def _coverage_reasons(accepted: Sequence[Acceptance], rule: EvidenceRule) -> Iterator[Reason]:
    """Each required engine runs each required mode at each required TP degree; an empty list asks for any one."""
    for engine in rule.engines or (None,):
        for mode in rule.modes or (None,):
            for degree in rule.tp_degrees or (None,):
                if not any(engine in (None, item.engine) and mode in (None, item.mode) and degree in (None, item.tp) for item in accepted):
                    wanted = " ".join(part for part in (engine, mode, f"TP {degree}" if degree else "") if part)
                    measured = ", ".join(f"{item.engine} {item.mode} TP {item.tp}" for item in accepted)
                    yield reason("GATE010", f"no evidence of {wanted or 'any run'}", measured=measured or "none", expected=wanted)


def _acceptance(file: EvidenceFile, result: SmokeResult, mode: ModeResult) -> Acceptance:
    return Acceptance(engine=result.engine, mode=mode.mode, tp=mode.tp, acceptance_length=mode.acceptance_length, exact=mode.exact, total=mode.total, file=file.path)


def _minor(version: str) -> str:
    match = re.match(r"(\d+\.\d+)(\D|$)", version)
    return match.group(1) if match else version


def _day(text: str) -> date | None:
    """The UTC day of an ISO 8601 time; None when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
