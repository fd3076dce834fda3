"""Speculators files of each date: what decides the layout, and which contradictions stay visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafts import ABSENT, load, read, said
from speculators_convert.checkpoint import collect
from speculators_convert.sources import LocalSource
from speculators_convert.spec import D2T, Anchor, AttentionKind, MarkovHead, MarkovKind

LIBRARY = Path(__file__).parents[3] / "fixtures" / "library"
TOKENS = "speculators_config.proposal_methods"
SAVES = sorted(str(path.parent.relative_to(LIBRARY)) for path in LIBRARY.glob("*/*/config.json"))


def method(tokens: object) -> list[dict[str, object]]:
    return [{"proposal_type": "greedy", "speculative_tokens": tokens}]


@pytest.mark.parametrize(
    ("tokens", "version", "anchor", "gamma", "slots"),
    [
        (7, "0.6.0", Anchor.BONUS, 7, 8),
        (8, "0.6.0", Anchor.SAMPLED, 8, 8),
        (None, "0.6.0", Anchor.BONUS, 7, 8),
        (None, "0.6.1.dev3", Anchor.BONUS, 7, 8),
        (None, None, None, None, None),
        (None, "0.7.0", None, None, None),
        (None, "nightly", None, None, None),
        (5, "0.7.0", None, None, None),
        (7, "0.9.0", Anchor.BONUS, 7, 8),
        (8, "0.9.0", Anchor.SAMPLED, 8, 8),
    ],
)
def test_without_the_key_tokens_decide_and_then_the_version(tokens: int | None, version: str | None, anchor: Anchor | None, gamma: int | None, slots: int | None) -> None:
    change = {TOKENS: method(tokens) if tokens else [], "speculators_version": version or ABSENT}
    spec = read(load("speculators-early-version-only", change)).spec
    assert (spec.anchor, spec.gamma, spec.query_slots) == (anchor, gamma, slots)


@pytest.mark.parametrize(("stated", "anchor", "gamma"), [(True, Anchor.SAMPLED, 8), (False, Anchor.BONUS, 7)])
def test_the_key_decides_over_tokens_and_version(stated: bool, anchor: Anchor, gamma: int) -> None:
    reading = read(load("speculators-early-version-only", {"sample_from_anchor": stated, TOKENS: method(8 if not stated else 7)}))
    assert (reading.spec.anchor, reading.spec.gamma) == (anchor, gamma)
    assert [(says, decides) for says, _, decides in said(reading, "anchor")] == [(anchor.value, True), (("bonus", "sampled")[not stated], False)]


def test_old_version_and_equal_tokens_contradict_and_both_stay() -> None:
    reading = read(load("speculators-early-version-only", {TOKENS: method(8)}))
    assert [(says, decides) for says, _, decides in said(reading, "anchor")] == [("sampled", True), ("bonus", False)]


def test_vllms_default_is_recorded_as_disputing_a_sampled_anchor_without_the_key() -> None:
    assert [says for says, _, _ in said(read(load("speculators-early-tokens-equal-block")), "anchor_disputed")] == ["bonus"]
    assert said(read(load("speculators-early-tokens-equal-block"), sample_from_anchor=True), "anchor_disputed") == []
    assert said(read(load("speculators-early-tokens-equal-block", {"sample_from_anchor": True})), "anchor_disputed") == []


@pytest.mark.parametrize("key", [None, ABSENT])
def test_a_null_key_is_an_absent_key(key: object) -> None:
    assert read(load("speculators-0.8-bonus-reduced", {"sample_from_anchor": key})).spec.anchor is Anchor.BONUS


def test_dflash_never_samples_the_anchor_and_its_old_count_is_a_conflict() -> None:
    reading = read(load("speculators-dflash-0.6"))
    assert (reading.spec.anchor, reading.spec.gamma, reading.spec.markov) == (Anchor.BONUS, 15, None)
    assert [says for says, _, _ in said(reading, "gamma")] == ["15", "16"]
    assert [says for says, _, _ in said(read(load("speculators-dflash-0.6", {TOKENS: method(15)})), "gamma")] == ["15", "15"]


def test_a_dflash_label_over_markov_tables_is_read_as_dspark_and_is_a_conflict() -> None:
    reading = read(load("speculators-0.9-anchor-reduced", {"speculators_model_type": "dflash"}))
    assert reading.spec.markov == MarkovHead(kind=MarkovKind.VANILLA, rank=4)
    assert [(says, decides) for says, _, decides in said(reading, "algorithm")] == [("dspark", True), ("dflash", False), ("dspark", False)]


def test_gamma_needs_no_block_size_when_tokens_and_layout_are_stated() -> None:
    spec = read(load("speculators-0.8-bonus-reduced", {"block_size": ABSENT})).spec
    assert (spec.gamma, spec.query_slots) == (7, 8)


def test_settings_win_and_are_evidence() -> None:
    reading = read(
        load("speculators-0.9-anchor-reduced"),
        sample_from_anchor=False,
        gamma=5,
        mask_token_id=9,
        rope_theta=5.0,
        sliding_window=64,
        sliding_window_non_causal=True,
        markov_head_type=MarkovKind.GATED,
        target_layer_ids=(0, 1, 2, 3, 4),
        max_position_embeddings=77,
        verifier="org/other",
    )
    spec = reading.spec
    assert (spec.anchor, spec.gamma, spec.query_slots, spec.mask_token_id, spec.rope.theta) == (Anchor.BONUS, 5, 6, 9, 5.0)
    assert (spec.sliding_window, spec.sliding_causal, spec.target_layer_ids) == (64, False, (0, 1, 2, 3, 4))
    assert spec.markov is not None
    assert (spec.markov.kind, spec.max_position_embeddings, spec.verifier.name_or_path) == (MarkovKind.GATED, 77, "org/other")
    for fact in ("gamma", "mask_token_id", "rope_theta", "target_layer_ids", "markov_head_type"):
        first, *rest = said(reading, fact)
        assert (first[1].startswith("--set"), first[2]) == (True, True)
        assert rest, fact


def test_shapes_outrank_the_config_and_the_difference_stays() -> None:
    reading = read(load("speculators-0.9-anchor-reduced", {"transformer_layer_config.hidden_size": 16, "draft_vocab_size": 32, "markov_rank": 9}))
    assert (reading.spec.hidden_size, reading.spec.draft_vocab_size) == (8, 24)
    assert [says for says, _, _ in said(reading, "hidden_size")] == ["8", "16"]
    assert [says for says, _, _ in said(reading, "draft_vocab_size")] == ["24", "24", "24", "32"]
    assert [says for says, _, _ in said(reading, "markov_rank")] == ["4", "4", "9"]


def test_layer_ids_are_one_lower_and_zero_is_the_embedding() -> None:
    spec = read(load("speculators-0.9-anchor-reduced", {"aux_hidden_state_layer_ids": [0, 2, 10, 20, 37]})).spec
    assert spec.target_layer_ids == (-1, 1, 9, 19, 36)


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        ({"layer_types": ["sliding_attention", "full_attention"]}, (AttentionKind.SLIDING, AttentionKind.FULL)),
        ({"layer_types": ABSENT, "use_sliding_window": False}, (AttentionKind.FULL, AttentionKind.FULL)),
        ({"layer_types": ABSENT, "use_sliding_window": True, "sliding_window": None}, (AttentionKind.FULL, AttentionKind.FULL)),
        ({"layer_types": ABSENT, "use_sliding_window": True, "max_window_layers": 1}, (AttentionKind.FULL, AttentionKind.SLIDING)),
        ({"layer_types": ABSENT, "use_sliding_window": True, "max_window_layers": ABSENT}, (AttentionKind.FULL, AttentionKind.FULL)),
        ({"layer_types": ["sliding_attention", "linear_attention"]}, None),
    ],
)
def test_layer_types_follow_qwen3s_rules(nested: dict[str, object], expected: object) -> None:
    change = {f"transformer_layer_config.{key}": value for key, value in nested.items()}
    assert read(load("speculators-0.9-anchor-reduced", change)).spec.layer_types == expected


@pytest.mark.parametrize(
    ("nested", "theta", "kind", "scaling"),
    [
        ({"rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}, "rope_theta": ABSENT}, 5.0, "default", {}),
        ({"rope_parameters": {"full_attention": {"rope_theta": 6.0, "rope_type": "default"}}, "rope_theta": ABSENT}, 6.0, "default", {}),
        ({"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, 7.0, "linear", {"factor": 2.0}),
        ({"rope_theta": 7, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "unknown": 1}}, 7.0, "yarn", {"factor": 2.0}),
        ({"rope_theta": ABSENT}, 10_000.0, "default", {}),
    ],
)
def test_rope_in_each_spelling(nested: dict[str, object], theta: float, kind: str, scaling: dict[str, object]) -> None:
    rope = read(load("speculators-0.9-anchor-reduced", {f"transformer_layer_config.{key}": value for key, value in nested.items()})).spec.rope
    assert (rope.theta, rope.type, rope.scaling) == (theta, kind, scaling)


def test_two_thetas_are_a_conflict() -> None:
    change = {
        "transformer_layer_config.rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}},
        "transformer_layer_config.rope_theta": ABSENT,
    }
    assert {says for says, _, _ in said(read(load("speculators-0.9-anchor-reduced", change)), "rope_theta")} == {"10000.0", "1000000.0"}


@pytest.mark.parametrize("save", SAVES)
def test_files_that_the_library_saved_are_read_without_conflict(save: str) -> None:
    """Drafts written by speculators 0.7, 0.8 and 0.9 themselves; their folder names say what they are."""
    reading = read(collect(LocalSource(LIBRARY / save)))
    spec, name = reading.spec, save.split("/")[1]
    assert reading.problems == ()
    for fact in {item.fact for item in spec.evidence}:
        assert len({item.says for item in spec.evidence if item.fact == fact}) == 1, fact
    assert spec.speculative_tokens == spec.gamma
    if "anchor" in name or "bonus" in name:
        assert spec.anchor is (Anchor.BONUS if "bonus" in name else Anchor.SAMPLED)
    if "full" in name or "reduced" in name:
        assert (spec.reduced_vocabulary, spec.d2t) == (("reduced" in name), D2T.OFFSET if "reduced" in name else D2T.NONE)
    for kind in MarkovKind:
        assert kind.value not in name or (spec.markov is not None and spec.markov.kind is kind)
    if "no-markov" in name:
        assert spec.markov is None
    if "no-confidence" in name:
        assert spec.confidence is None
