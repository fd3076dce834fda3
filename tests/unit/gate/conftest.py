"""A sound report, a sound smoke result and a case that passes; each test changes one thing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from speculators_convert.findings import EngineVerdict, Finding, FormatInfo, Report, SizeInfo, Skipped, SourceInfo
from speculators_convert.gate.decision import Case
from speculators_convert.gate.evidence_files import EvidenceFile
from speculators_convert.model import Severity, canonical_json, sha256_hex
from speculators_convert.results.smoke import CheckpointDigest, ModeResult, PromptOutcome, SmokeResult
from speculators_convert.spec import D2T, Anchor, DraftSpec, Rope, TensorRef, Verifier
from speculators_convert.version import __version__

TODAY = date(2026, 3, 1)


def digest_of(**files: str) -> CheckpointDigest:
    """A digest over made-up file digests."""
    return CheckpointDigest(digest=sha256_hex(canonical_json(files)), files=files, reference="made")


DRAFT = digest_of(config="aa", weights="bb")
TARGET = digest_of(config="cc", weights="dd")


@pytest.fixture
def spec() -> DraftSpec:
    return DraftSpec(
        format="speculators",
        anchor=Anchor.SAMPLED,
        gamma=4,
        query_slots=4,
        target_layer_ids=(0, 2),
        target_vocab_size=64,
        draft_vocab_size=32,
        d2t=D2T.OFFSET,
        hidden_size=8,
        target_hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        rms_norm_eps=1e-6,
        hidden_act="silu",
        attention_bias=False,
        max_position_embeddings=128,
        layer_types=None,
        sliding_window=None,
        sliding_causal=False,
        rope=Rope(theta=10000.0),
        markov=None,
        confidence=None,
        mask_token_id=3,
        dtype="BF16",
        tie_word_embeddings=False,
        verifier=Verifier(name_or_path="org/target"),
        tensors={"d2t": TensorRef(file="model.safetensors", name="d2t", dtype="I64", shape=(32,), start=400, stop=656)},
    )


@pytest.fixture
def finding() -> Finding:
    return Finding(
        code="DSP105",
        severity=Severity.ERROR,
        message="3 ids leave the target vocabulary",
        subject="d2t",
        measured="67",
        expected="< 64",
        hint="Save d2t again.",
        file="model.safetensors",
    )


@pytest.fixture
def warning() -> Finding:
    return Finding(
        code="DSP230",
        severity=Severity.WARNING,
        message="rope theta is not stated",
        subject="rope_theta",
        measured="missing",
        expected="a number",
        hint="State it.",
        file="config.json",
        pointer="/transformer_layer_config",
    )


@pytest.fixture
def report(spec: DraftSpec) -> Report:
    return Report(
        tool_version=__version__,
        source=SourceInfo(kind="local", name="drafts/one", revision=None, files=("config.json", "model.safetensors"), total_bytes=1000),
        format=FormatInfo(name="speculators", title="Speculators DSpark", why=("speculators_model_type is dspark",)),
        spec=spec,
        geometry=("gamma 4: draft forward of 4 slots",),
        tensors=(),
        size=SizeInfo(tensor_bytes=900, per_rank_bytes={"1": 900, "2": 500}, read_per_block_bytes=900, borrowed_head_bytes=0),
        findings=(),
        skipped=(),
        engines=(
            EngineVerdict(engine="vllm", version="0.33.0", verdict="loads", reasons=(), launch="vllm serve target --speculative-config ..."),
            EngineVerdict(engine="sglang", version="0.5.23", verdict="needs-normalize", reasons=("reads its own flat config only",), launch="spec-convert normalize ..."),
        ),
    )


def mode(name: str = "eager", *, tp: int = 1, length: float = 2.5, exact: int = 4, total: int = 4) -> ModeResult:
    outcomes = tuple(
        PromptOutcome(prompt=index, exact=index < exact, first_difference=None if index < exact else 7, output_tokens=50, verify_steps=20, accepted_tokens=30)
        for index in range(total)
    )
    return ModeResult(
        mode=name,
        tp=tp,
        acceptance_length=length,
        acceptance_by_position=(0.8, 0.5, 0.2, 0.0),
        verify_steps=20 * total,
        drafted_tokens=80 * total,
        accepted_tokens=30 * total,
        exact=exact,
        total=total,
        seconds=1.0,
        target_only_seconds=2.0,
        outcomes=outcomes,
    )


@pytest.fixture
def smoke() -> SmokeResult:
    return SmokeResult(
        tool_version=__version__,
        checkpoint=DRAFT,
        target=TARGET,
        engine="reference",
        engine_reason="asked for",
        environment={"torch": "2.13.0", "created": "2026-02-20T10:00:00Z"},
        parameters={"max_new_tokens": 64},
        modes=(mode(),),
        comparisons=(),
        verdict="pass",
        reasons=(),
    )


@pytest.fixture
def evidence(smoke: SmokeResult) -> Callable[..., EvidenceFile]:
    def build(**changes: object) -> EvidenceFile:
        return EvidenceFile("smoke.json", result=smoke.model_copy(update=changes))

    return build


@pytest.fixture
def case(report: Report, evidence: Callable[..., EvidenceFile]) -> Case:
    return Case(reference="drafts/one", report=report, today=TODAY, target="targets/one", digest=DRAFT, target_digest=TARGET, evidence=(evidence(),))


@pytest.fixture
def needs_target() -> Skipped:
    return Skipped(code="DSP701", reason="needs --target")
