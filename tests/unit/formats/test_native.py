"""The flat packagings: what each producer's rule says, and what stays visible when places disagree."""

from __future__ import annotations

import pytest

from drafts import ABSENT, load, read, said
from speculators_convert.formats import detect
from speculators_convert.spec import Anchor, AttentionKind, MarkovKind


def name_of(*args: object, **kwargs: object) -> str | None:
    found = detect(load(*args, **kwargs)).format  # type: ignore[arg-type]
    return found.name if found else None


# DeepSpec


def test_deepspec_samples_the_anchor_when_nothing_is_stated() -> None:
    reading = read(load("deepspec-vanilla"))
    assert (reading.spec.anchor, reading.spec.gamma, reading.spec.query_slots) == (Anchor.SAMPLED, 7, 7)
    assert said(reading, "anchor") == [("sampled", "format rule: DeepSpec trains slot k on the token k + 1 after the anchor", True)]


def test_a_flat_block_size_is_gamma_in_both_layouts() -> None:
    spec = read(load("deepspec-vanilla", {"sample_from_anchor": False})).spec
    assert (spec.anchor, spec.gamma, spec.query_slots) == (Anchor.BONUS, 7, 8)


def test_each_spelling_is_one_fact_and_a_difference_is_visible() -> None:
    reading = read(
        load(
            "deepspec-sglang-bonus",
            {"dflash_config.mask_token_id": 4, "dspark_config.target_layer_ids": [1, 2, 3, 4, 5], "dflash_config.block_size": 9, "dflash_config.markov_rank": 5},
        )
    )
    assert said(reading, "mask_token_id") == [
        ("3", "config.json#/mask_token_id", True),
        ("3", "config.json#/dspark_config/mask_token_id", False),
        ("4", "config.json#/dflash_config/mask_token_id", False),
    ]
    assert [says for says, _, _ in said(reading, "target_layer_ids")] == ["[1, 9, 19, 29, 36]", "[1, 2, 3, 4, 5]", "[1, 9, 19, 29, 36]"]
    assert [says for says, _, _ in said(reading, "gamma")] == ["6", "6", "9"]
    assert [says for says, _, _ in said(reading, "markov_rank")] == ["4", "4", "4", "4", "5"]


def test_aux_ids_beside_target_ids_are_the_same_fact() -> None:
    good = read(load("deepspec-vanilla", {"eagle_aux_hidden_state_layer_ids": [2, 10, 20, 30, 37]}))
    bad = read(load("deepspec-vanilla", {"eagle_aux_hidden_state_layer_ids": [1, 9, 19, 29, 36]}))
    assert {says for says, _, _ in said(good, "target_layer_ids")} == {"[1, 9, 19, 29, 36]"}
    assert said(bad, "target_layer_ids")[1] == ("[0, 8, 18, 28, 35]", "config.json#/eagle_aux_hidden_state_layer_ids minus 1", False)


def test_tensor_names_with_model_prefix_have_their_roles() -> None:
    spec = read(load("deepspec-sglang-bonus")).spec
    assert spec.tensors["fc.weight"].name == "model.fc.weight"
    assert spec.tensors["layers.1.mlp.up_proj.weight"].name == "model.layers.1.mlp.up_proj.weight"
    assert spec.unknown_tensors == ()


def test_a_plain_name_wins_over_a_prefixed_copy() -> None:
    checkpoint = load("deepspec-vanilla", rename=lambda name: "model.norm.weight" if name == "hidden_norm.weight" else name)
    spec = read(checkpoint).spec
    assert spec.tensors["norm.weight"].name == "norm.weight"
    assert spec.unknown_tensors == ("model.norm.weight",)


def test_vendor_aliases_have_their_roles() -> None:
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    spec = read(load("deepspec-vanilla", rename=lambda name: names.get(name, name))).spec
    assert spec.tensors["fc.weight"].name == "encoder.fc.weight"
    assert spec.tensors["hidden_norm.weight"].name == "encoder.output_norm_enc.weight"


def test_a_dspark_config_alone_is_recognised() -> None:
    change = {"target_layer_ids": ABSENT, "dspark_config": {"target_layer_ids": [1, 9, 19, 29, 36]}, "architectures": ["DSparkMiniMaxDraftModel"]}
    assert read(load("deepspec-vanilla", change)).spec.target_layer_ids == (1, 9, 19, 29, 36)


def test_causal_full_layers_are_a_problem_because_the_normal_form_has_none() -> None:
    (problem,) = read(load("deepspec-vanilla", {"is_causal": True})).problems
    assert (problem.subject, problem.pointer) == ("is_causal", "/is_causal")
    assert read(load("deepspec-vanilla", {"is_causal": False})).problems == ()


def test_interleaved_rotary_is_a_problem_because_the_normal_form_has_none() -> None:
    """Lfm2DSparkDraftModel states it."""
    assert [problem.pointer for problem in read(load("specforge-current", {"rope_is_neox_style": False})).problems] == ["/rope_is_neox_style"]
    assert read(load("specforge-current", {"rope_is_neox_style": True})).problems == ()


# NeMo


@pytest.mark.parametrize("label", ["DeepseekV4DSparkModel", "Glm5_2DSparkModel", "KimiK3DSparkModel", "MiniMaxM3DSparkModel"])
def test_nemos_own_architectures_are_registered_by_no_engine(label: str) -> None:
    reading = read(load("nemo-glm", {"architectures": [label]}))
    assert reading.spec.format == "nemo"
    assert [says for says, _, _ in said(reading, "architecture_engines")] == ["none"]


def test_a_shared_architecture_is_read_as_deepspec() -> None:
    assert name_of("nemo-glm", {"architectures": ["Qwen3DSparkModel"]}) == "deepspec"
    assert name_of("nemo-glm", {"architectures": ["Gemma4DSparkModel"]}) == "deepspec"


# SpecForge


def test_specforges_labels_decide_and_its_sampler_is_kept_as_the_other_reading() -> None:
    reading = read(load("specforge-current"))
    assert (reading.spec.anchor, reading.spec.gamma) == (Anchor.SAMPLED, 7)
    ((says, source, decides),) = said(reading, "anchor_disputed")
    assert (says, decides) == ("bonus", False)
    assert "--set sample_from_anchor=" in source


@pytest.mark.parametrize("stated", [True, False])
def test_stating_the_layout_settles_the_dispute(stated: bool) -> None:
    by_user = read(load("specforge-current"), sample_from_anchor=stated)
    by_file = read(load("specforge-current", {"sample_from_anchor": stated}))
    for reading in (by_user, by_file):
        assert (reading.spec.anchor, reading.spec.gamma) == ((Anchor.SAMPLED, 7) if stated else (Anchor.BONUS, 6))
        assert said(reading, "anchor_disputed") == []


def test_legacy_names_have_the_same_roles_as_current_ones() -> None:
    assert set(read(load("specforge-legacy")).spec.tensors) - set(read(load("specforge-current")).spec.tensors) == {"markov_head.gate_proj.weight", "markov_head.gate_proj.bias"}
    assert read(load("specforge-legacy")).spec.tensors["markov_head.markov_w1.weight"].name == "logit_head.markov_head.markov_w1.weight"


@pytest.mark.parametrize("name", ["logit_head.prefix_gru.weight_ih_l0", "logit_head.embed_proj.weight"])
def test_other_legacy_parts_are_unknown_and_not_dropped(name: str) -> None:
    spec = read(load("specforge-legacy", rename=lambda old: name if old.endswith("gate_proj.bias") else old)).spec
    assert spec.unknown_tensors == (name,)


def test_yarn_is_read() -> None:
    rope = read(load("specforge-current")).spec.rope
    assert (rope.type, rope.theta, rope.scaling) == ("yarn", 1e6, {"factor": 32.0, "original_max_position_embeddings": 64})


def test_specforge_lifted_to_the_top_is_native() -> None:
    """SpecForge's own normalizer, and our SGLang layout, write the ids to the top level: `block_size` is gamma there."""
    assert name_of("specforge-current", {"target_layer_ids": [1, 9, 19, 29, 36]}) == "deepspec"


# TorchSpec


def test_torchspecs_num_target_layers_counts_taps() -> None:
    assert read(load("torchspec-dflash")).spec.num_target_layers == 40


def test_torchspecs_renamed_backbone_has_roles() -> None:
    spec = read(load("torchspec-dspark")).spec
    assert {role: spec.tensors[role].name for role in ("fc.weight", "hidden_norm.weight", "norm.weight")} == {
        "fc.weight": "context_proj.weight",
        "hidden_norm.weight": "context_norm.weight",
        "norm.weight": "final_norm.weight",
    }


def test_torchspecs_markov_tables_decide_its_layout() -> None:
    assert read(load("torchspec-dspark")).spec.anchor is Anchor.SAMPLED
    assert read(load("torchspec-dspark", {"markov_rank": ABSENT}, drop="markov_head")).spec.anchor is Anchor.BONUS


# ModelOpt


def test_modelopts_flat_names_have_roles_whatever_the_label() -> None:
    reading = read(load("modelopt-gated"))
    assert reading.spec.markov is not None
    assert reading.spec.markov.kind is MarkovKind.GATED
    assert reading.spec.tensors["markov_head.gate_proj.weight"].name == "gate_proj.weight"
    assert reading.spec.tensors["confidence_head.proj.bias"].name == "confidence_proj.bias"
    assert [(says, decides) for says, _, decides in said(reading, "algorithm")] == [("dspark", True), ("dspark", False), ("dflash", False)]


@pytest.mark.parametrize(("shift", "anchor", "gamma"), [(True, Anchor.SAMPLED, 16), (False, Anchor.BONUS, 15), (ABSENT, Anchor.BONUS, 15)])
def test_shift_label_states_the_anchor(shift: object, anchor: Anchor, gamma: int) -> None:
    spec = read(load("modelopt-vanilla", {"dflash_config.shift_label": shift})).spec
    assert (spec.anchor, spec.gamma) == (anchor, gamma)


def test_use_confidence_head_is_the_same_fact() -> None:
    reading = read(load("modelopt-vanilla", {"dflash_config.use_confidence_head": False}))
    assert said(reading, "enable_confidence_head") == [("true", "confidence_head.* tensors", True), ("false", "config.json#/dflash_config/use_confidence_head", False)]


def test_use_swa_makes_all_layers_slide() -> None:
    change = {"layer_types": ABSENT, "dflash_config.use_swa": True, "dflash_config.swa_window_size": 64, "dflash_config.causal": True}
    spec = read(load("modelopt-vanilla", change)).spec
    assert (spec.layer_types, spec.sliding_window, spec.sliding_causal) == ((AttentionKind.SLIDING,) * 2, 64, True)


# Nemotron


def test_nemotron_states_its_layout_four_times() -> None:
    reading = read(load("nemotron-bf16"))
    assert [says for says, _, _ in said(reading, "anchor")] == ["bonus"] * 3
    assert [says for says, _, _ in said(read(load("nemotron-bf16", {"dspark_bonus_anchor": False})), "anchor")] == ["bonus", "bonus", "sampled"]


def test_nemotrons_block_counts_slots_and_sglangs_reading_is_kept() -> None:
    reading = read(load("nemotron-bf16"))
    assert (reading.spec.gamma, reading.spec.query_slots) == (7, 8)
    assert [says for says, _, _ in said(reading, "gamma_disputed")] == ["8"]
    assert said(read(load("nemotron-bf16"), gamma=8), "gamma_disputed") == []


def test_nemotrons_layer_ids_in_both_spellings() -> None:
    assert {says for says, _, _ in said(read(load("nemotron-bf16")), "target_layer_ids")} == {"[1, 9, 19, 29, 36]"}
    assert len(said(read(load("nemotron-bf16")), "target_layer_ids")) == 3


def test_quantization_and_sinks_are_named() -> None:
    spec = read(load("nemotron-nvfp4")).spec
    assert (spec.quantization, spec.attention_sinks, spec.dtype) == ("W4A16_NVFP4", True, "bfloat16")
    assert (spec.num_attention_heads, spec.num_key_value_heads, spec.intermediate_size) == (2, 1, 12)
