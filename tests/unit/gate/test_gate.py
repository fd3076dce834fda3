"""`decide` fails closed: each thing that is wrong, missing or unseen gives one named reason and no pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.errors import SourceError
from speculators_convert.findings import Finding, Skipped
from speculators_convert.gate.codes import GATE_CODES
from speculators_convert.gate.decision import Case, ReceiptState, decide, unreadable
from speculators_convert.gate.evidence_files import EvidenceFile, Fault, parse_evidence, read_evidence
from speculators_convert.gate.verdict import GateReport
from speculators_convert.model import Severity
from speculators_convert.policies import EngineRule, EvidenceRule, GatePolicy, Waiver, load_policy
from speculators_convert.results.smoke import CheckpointDigest, Comparison, Equivalence, ModeResult, Sampled

PUBLISH, DEFAULT = load_policy("publish"), load_policy("default")


def codes(gate: GateReport) -> list[str]:
    return [reason.code for reason in gate.reasons()]


def with_report(case: Case, **changes: object) -> Case:
    return replace(case, report=case.report.model_copy(update=changes))


def waiver(code: str = "DSP105", *, expires: str = "2026-03-01", subject: str = "") -> Waiver:
    return Waiver(code=code, subject=subject, reason="agreed with the trainers", expires=date.fromisoformat(expires))


def test_a_sound_checkpoint_with_sound_evidence_passes_both_policies(case: Case) -> None:
    for policy in (DEFAULT, PUBLISH):
        gate = decide(case, policy)
        assert (gate.outcome, codes(gate)) == ("pass", [])
        assert all(item.met for item in gate.requirements)


def test_default_needs_no_evidence_and_publish_does(case: Case) -> None:
    bare = replace(case, evidence=())
    assert decide(bare, DEFAULT).outcome == "pass"
    assert codes(decide(bare, PUBLISH)) == ["GATE010"]


def test_an_error_fails_and_a_warning_does_not_unless_the_policy_says_so(case: Case, finding: Finding, warning: Finding) -> None:
    assert codes(decide(with_report(case, findings=(finding,)), DEFAULT)) == ["DSP105"]
    warned = with_report(case, findings=(warning,))
    assert decide(warned, DEFAULT).outcome == "pass"
    assert codes(decide(warned, DEFAULT.model_copy(update={"fail_on": Severity.WARNING}))) == ["DSP230"]


def test_a_waiver_covers_its_code_until_its_last_day(case: Case, finding: Finding) -> None:
    wrong = with_report(case, findings=(finding,))
    gate = decide(wrong, DEFAULT.model_copy(update={"waivers": (waiver(),)}))
    assert (gate.outcome, [item.code for item in gate.waived]) == ("pass", ["DSP105"])
    late = decide(wrong, DEFAULT.model_copy(update={"waivers": (waiver(expires="2026-02-28"),)}))
    assert codes(late) == ["DSP105"]
    assert "waiver expired on 2026-02-28" in late.reasons()[0].hint


def test_a_waiver_of_another_subject_does_not_cover(case: Case, finding: Finding) -> None:
    policy = DEFAULT.model_copy(update={"waivers": (waiver(subject="t2d"),)})
    gate = decide(with_report(case, findings=(finding,)), policy)
    assert codes(gate) == ["DSP105"]
    assert any("covers nothing" in note for note in gate.notes)


def test_an_unknown_format_fails(case: Case) -> None:
    assert "GATE002" in codes(decide(with_report(case, spec=None, size=None), DEFAULT))


def test_a_check_that_did_not_run_fails_even_when_its_blocker_is_waived(case: Case, finding: Finding) -> None:
    blocked = with_report(case, findings=(finding,), skipped=(Skipped(code="DSP106", reason="DSP105 found an error"),))
    assert codes(decide(blocked, DEFAULT.model_copy(update={"waivers": (waiver(),)}))) == ["GATE003"]
    both = DEFAULT.model_copy(update={"waivers": (waiver(), waiver("DSP106"))})
    assert decide(blocked, both).outcome == "pass"


def test_checks_that_need_the_target_may_be_skipped_only_while_the_target_is_optional(case: Case, needs_target: Skipped) -> None:
    alone = replace(with_report(case, skipped=(needs_target,)), target=None, target_digest=None)
    gate = decide(alone, DEFAULT)
    assert gate.outcome == "pass"
    assert any("1 checks need the target" in note for note in gate.notes)
    assert codes(decide(alone, PUBLISH)) == ["GATE004"]
    assert codes(decide(with_report(case, skipped=(needs_target,)), DEFAULT)) == ["GATE003"]


def test_a_required_tp_degree_must_have_been_checked(case: Case) -> None:
    assert codes(decide(case, DEFAULT.model_copy(update={"tp_degrees": (1, 8)}))) == ["GATE005"]
    assert codes(decide(with_report(case, size=None), DEFAULT)) == ["GATE005"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (EngineRule(engine="vllm"), []),
        (EngineRule(engine="vllm", version="0.33.0"), []),
        (EngineRule(engine="vllm", version="9.9"), ["GATE006"]),
        (EngineRule(engine="sglang"), ["GATE006"]),
        (EngineRule(engine="sglang", verdicts=("loads", "needs-normalize")), []),
        (EngineRule(engine="absent"), ["GATE006"]),
    ],
)
def test_required_engines(case: Case, rule: EngineRule, expected: list[str]) -> None:
    assert codes(decide(case, DEFAULT.model_copy(update={"engines": (rule,)}))) == expected


def test_an_unknown_engine_verdict_is_no_pass(case: Case) -> None:
    unknown = tuple(item.model_copy(update={"verdict": "unknown"}) for item in case.report.engines)
    assert codes(decide(with_report(case, engines=unknown), DEFAULT.model_copy(update={"engines": (EngineRule(engine="vllm"),)}))) == ["GATE006"]


def test_the_receipt(case: Case) -> None:
    required = DEFAULT.model_copy(update={"receipt": "required"})
    assert codes(decide(case, required)) == ["GATE020"]
    assert decide(replace(case, receipt=ReceiptState(present=True)), required).outcome == "pass"
    broken = replace(case, receipt=ReceiptState(present=True, problems=("config.json: changed after the rewrite",)))
    assert codes(decide(broken, DEFAULT)) == ["GATE021"]


def _foreign_digest() -> CheckpointDigest:
    from speculators_convert.model import canonical_json, sha256_hex  # noqa: PLC0415

    files = {"config": "aa", "weights": "other"}
    return CheckpointDigest(digest=sha256_hex(canonical_json(files)), files=files, reference="elsewhere")


def _mode(case: Case, **changes: object) -> tuple[ModeResult, ...]:
    result = case.evidence[0].result
    assert result is not None
    return (result.modes[0].model_copy(update=changes),)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("GATE012", {"tool_version": "0.0.1"}),
        ("GATE012", {"tool_version": "99.0.0"}),
        ("GATE013", {"checkpoint": _foreign_digest()}),
        ("GATE013", {"target": _foreign_digest()}),
        ("GATE013", {"parameters": {"settings": {"sample_from_anchor": True}}}),
        ("GATE014", {"verdict": "fail", "reasons": ("acceptance under the floor",)}),
        ("GATE014", {"verdict": "not-run"}),
        ("GATE014", {"modes": ()}),
        ("GATE014", {"comparisons": (Comparison(name="graph equals eager", holds=False, measured="3 of 4", expected="4 of 4"),)}),
        ("GATE017", {"checkpoint": CheckpointDigest(digest="ab" * 32, files={"config": "aa", "weights": "bb"}, reference="edited")}),
    ],
)
def test_evidence_that_cannot_count_fails_both_policies(case: Case, evidence: Callable[..., EvidenceFile], code: str, changes: dict[str, object]) -> None:
    for policy in (DEFAULT, PUBLISH):
        gate = decide(replace(case, evidence=(evidence(**changes),)), policy)
        assert (gate.outcome, codes(gate)) == ("fail", [code])
        assert gate.reasons()[0].file == "smoke.json"
        assert gate.acceptance == ()


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("GATE014", {"verify_steps": 0}),
        ("GATE014", {"drafted_tokens": 0}),
        ("GATE016", {"acceptance_length": 1.1}),
        ("GATE016", {"acceptance_length": float("nan")}),
        ("GATE017", {"exact": 3}),
        ("GATE017", {"total": 5}),
    ],
)
def test_numbers_of_a_mode_that_fail(case: Case, evidence: Callable[..., EvidenceFile], code: str, changes: dict[str, object]) -> None:
    gate = decide(replace(case, evidence=(evidence(modes=_mode(case, **changes)),)), PUBLISH)
    assert code in codes(gate)
    assert gate.outcome == "fail"


def _policy(**rule: object) -> GatePolicy:
    return PUBLISH.model_copy(update={"evidence": PUBLISH.evidence.model_copy(update=rule)})


def _differing(case: Case, evidence: Callable[..., EvidenceFile], **more: object) -> Case:
    """Evidence in which one of four outputs leaves the target's own."""
    result = case.evidence[0].result
    assert result is not None
    outcomes = tuple(item.model_copy(update={"exact": item.prompt > 0}) for item in result.modes[0].outcomes)
    return replace(case, evidence=(evidence(modes=_mode(case, exact=3, outcomes=outcomes), **more),))


def _equivalence(*, ties: int, defects: int, mode: str = "eager") -> tuple[Equivalence, ...]:
    return (Equivalence(mode=mode, tp=1, dtype="bfloat16", tolerance_steps=2, exact=3, ties=ties, defects=defects, splits=()),)


def test_output_that_differs_fails_unless_the_policy_allows_it(case: Case, evidence: Callable[..., EvidenceFile]) -> None:
    differing = _differing(case, evidence)
    assert codes(decide(differing, PUBLISH)) == ["GATE015"]
    assert decide(differing, _policy(equivalence="any")).outcome == "pass"


def test_a_tie_is_no_difference_unless_the_policy_says_exact(case: Case, evidence: Callable[..., EvidenceFile]) -> None:
    tied = _differing(case, evidence, equivalence=_equivalence(ties=1, defects=0))
    assert decide(tied, PUBLISH).outcome == "pass"
    assert codes(decide(tied, _policy(equivalence="exact"))) == ["GATE015"]
    for wrong in (_equivalence(ties=0, defects=1), _equivalence(ties=1, defects=1), _equivalence(ties=1, defects=0, mode="graph")):
        assert codes(decide(_differing(case, evidence, equivalence=wrong), PUBLISH)) == ["GATE015"]


def test_a_sampled_run_is_judged_by_its_distribution_and_needs_a_greedy_one_beside_it(case: Case, evidence: Callable[..., EvidenceFile]) -> None:
    greedy, sampled = _mode(case)[0], _mode(case, temperature=0.7)[0]
    follows = Sampled(mode="eager", tp=1, temperature=0.7, seed=0, tokens=100, p_value=0.4, level=0.01)
    both = evidence(modes=(greedy, sampled), sampled=(follows,))
    assert decide(replace(case, evidence=(both,)), PUBLISH).outcome == "pass"
    for file in (
        evidence(modes=(greedy, sampled)),
        evidence(modes=(greedy, sampled), sampled=(follows.model_copy(update={"p_value": 0.001}),)),
        evidence(modes=(greedy, sampled), sampled=(follows.model_copy(update={"p_value": float("nan")}),)),
        evidence(modes=(sampled,), sampled=(follows,)),
    ):
        assert codes(decide(replace(case, evidence=(file,)), PUBLISH)) == ["GATE015"]


def test_too_few_prompts(case: Case) -> None:
    rule = PUBLISH.evidence.model_copy(update={"min_prompts": 5})
    assert codes(decide(case, PUBLISH.model_copy(update={"evidence": rule}))) == ["GATE018"]


def test_the_age_of_evidence_counts_when_the_policy_limits_it(case: Case, evidence: Callable[..., EvidenceFile]) -> None:
    def age(days: int) -> GatePolicy:
        return PUBLISH.model_copy(update={"evidence": PUBLISH.evidence.model_copy(update={"max_age_days": days})})

    assert decide(case, age(9)).outcome == "pass"
    assert codes(decide(case, age(8))) == ["GATE012"]
    future = evidence(environment={"created": "2026-03-05T00:00:00Z"})
    undated = evidence(environment={})
    for file in (future, undated):
        assert codes(decide(replace(case, evidence=(file,)), age(30))) == ["GATE012"]


def test_evidence_that_was_not_compared_does_not_count(case: Case) -> None:
    assert codes(decide(replace(case, digest=None), DEFAULT)) == ["GATE013"]


@pytest.mark.parametrize(("kind", "code"), [("missing", "GATE010"), ("unreadable", "GATE011"), ("schema", "GATE012")])
def test_a_file_that_is_no_evidence_fails_also_where_none_is_required(case: Case, kind: str, code: str) -> None:
    bad = EvidenceFile("other.json", fault=Fault(kind, "no evidence"))
    assert codes(decide(replace(case, evidence=(*case.evidence, bad)), DEFAULT)) == [code]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (EvidenceRule(required=True, engines=("reference",), modes=("eager",), tp_degrees=(1,)), 0),
        (EvidenceRule(required=True, engines=("reference", "sglang")), 1),
        (EvidenceRule(required=True, modes=("eager", "graph")), 1),
        (EvidenceRule(required=True, tp_degrees=(1, 2, 4)), 2),
        (EvidenceRule(required=True, engines=("reference", "sglang"), tp_degrees=(1, 2)), 3),
    ],
)
def test_required_engines_modes_and_degrees_of_evidence(case: Case, rule: EvidenceRule, expected: int) -> None:
    assert codes(decide(case, PUBLISH.model_copy(update={"evidence": rule}))) == ["GATE010"] * expected


def test_an_unreadable_checkpoint_is_neither_pass_nor_fail() -> None:
    gate = unreadable("nowhere", "default", SourceError("no such folder", where="nowhere"))
    assert (gate.outcome, codes(gate)) == ("unreadable", ["E300"])


def test_reading_evidence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("evidence")
    absent = read_evidence(str(folder / "absent.json"))
    assert absent.fault is not None
    assert absent.fault.kind == "missing"
    is_folder = read_evidence(str(folder))
    assert is_folder.fault is not None
    assert is_folder.fault.kind == "unreadable"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "unreadable"),
        (b"{", "unreadable"),
        (b"[]", "unreadable"),
        (b"{}", "unreadable"),
        (b'{"schema_version":"1"}', "unreadable"),
        (b'{"schema_version":"2"}', "schema"),
        (b'{"a":1,"a":2}', "unreadable"),
        (b"\xff", "unreadable"),
    ],
)
def test_bytes_that_are_no_evidence(data: bytes, kind: str) -> None:
    parsed = parse_evidence(data, "x.json")
    assert parsed.result is None
    assert parsed.fault is not None
    assert parsed.fault.kind == kind


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    parsed = parse_evidence(data, "x.json")
    assert (parsed.result is None) != (parsed.fault is None)


def test_each_reason_of_the_gate_has_a_title_and_a_hint() -> None:
    assert all(item.title and item.hint for item in GATE_CODES.values())
