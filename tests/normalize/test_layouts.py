"""What each layout writes, leaves out and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from normalizing import normalize_draft, plan_draft, read_draft, synthetic_draft

from speculators_convert.checkpoint import collect
from speculators_convert.container.header import Tensor, encode, parse
from speculators_convert.errors import RefusedError, UsageError
from speculators_convert.layouts import LAYOUTS, Options, find
from speculators_convert.layouts.native_config import native_config
from speculators_convert.sources import MemorySource, open_source
from speculators_convert.spec import AttentionKind, Settings

OPTIONAL_KEYS = {"auto_map", "transformers_version"}


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


@pytest.mark.parametrize(
    "variant", ["vanilla-bonus-reduced", "gated-anchor-full", "sliding-causal", "mixed-noncausal-bonus", "no-markov", "taps-edge", "no-confidence", "no-markov-no-confidence"]
)
def test_the_speculators_config_is_that_of_the_library_without_code(fixtures_folder: Path, tmp_path: Path, variant: str) -> None:
    """Key for key what speculators 0.9.0 saved, but for remote code and the transformers release."""
    source = fixtures_folder / "library/0.9.0" / variant
    saved = config_of(source)
    (tmp_path / "clean").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "clean" / name).write_bytes((source / name).read_bytes())
    assert config_of(normalize_draft(tmp_path / "clean", tmp_path / "out").folder) == {key: value for key, value in saved.items() if key not in OPTIONAL_KEYS}


def test_the_flat_config_of_a_bonus_anchor_draft() -> None:
    spec = read_draft(MemorySource(synthetic_draft(sampled=False))).spec
    config = native_config(spec, architecture="Mine", draft_vocab_size=12)
    facts = {"block_size": 3, "sample_from_anchor": False, "target_layer_ids": [0, 2], "mask_token_id": 2, "markov_rank": 4, "markov_head_type": "vanilla"}
    for place in (config, config["dflash_config"], config["dspark_config"]):
        assert {key: place[key] for key in facts} == facts
    assert config["architectures"] == ["Mine"]
    assert config["draft_vocab_size"] == 12
    assert config["vocab_size"] == 24
    assert config["rope_parameters"] == {"rope_theta": 5000.0, "rope_type": "default"}
    assert config["use_sliding_window"] is False
    assert "is_causal" not in config
    assert config["spec_convert"] == {"verifier": "example/target", "verifier_architectures": ["Qwen3ForCausalLM"], "speculators_version": "0.8.1", "gamma": 3, "query_slots": 4}


def test_sliding_layers_switch_the_window_on_and_non_causal_ones_say_so() -> None:
    spec = read_draft(MemorySource(synthetic_draft())).spec
    sliding = spec.model_copy(update={"layer_types": (AttentionKind.SLIDING,), "sliding_window": 9, "sliding_causal": False})
    config = native_config(sliding)
    assert (config["use_sliding_window"], config["sliding_window"], config["is_causal"]) == (True, 9, False)


@pytest.mark.parametrize("field", ["anchor", "gamma", "target_layer_ids", "mask_token_id", "dtype", "max_position_embeddings", "layer_types", "hidden_size"])
def test_what_the_file_leaves_open_is_refused_not_guessed(field: str) -> None:
    read = read_draft(MemorySource(synthetic_draft(reduced=False)))
    open_fact = read.spec.model_copy(update={field: None})
    for name in LAYOUTS:
        if name in ("speculators", "sglang"):
            with pytest.raises(RefusedError, match="is not known"):
                find(name).plan(open_fact, read.checkpoint, _options())


def _options() -> Any:
    return Options()


def test_a_reduced_vocabulary_is_refused_with_the_way_out() -> None:
    with pytest.raises(RefusedError, match="reduced draft vocabulary") as error:
        plan_draft(read_draft(MemorySource(synthetic_draft())), "sglang")
    assert "--layout sglang-dense --target REF" in error.value.hint


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"markov": None}, "markov_rank"),
        ({"target_layer_ids": (-1, 2)}, "target_layer_ids"),
        ({"target_layer_ids": (2, 0)}, "target_layer_ids"),
        ({"target_layer_ids": (0, 3), "num_target_layers": 4}, "target_layer_ids"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": (AttentionKind.SLIDING,)}, "sliding_window"),
    ],
)
def test_what_stock_sglang_cannot_run_is_refused(changes: dict[str, Any], where: str) -> None:
    read = read_draft(MemorySource(synthetic_draft(reduced=False)))
    with pytest.raises(RefusedError, match="stock SGLang cannot serve") as error:
        find("sglang").plan(read.spec.model_copy(update=changes), read.checkpoint, _options())
    assert error.value.where == where
    assert error.value.hint


def test_a_target_of_another_width_is_refused() -> None:
    """SGLang gives the draft the target's embedding, so both must be as wide."""
    read = read_draft(MemorySource(synthetic_draft(reduced=False)))
    fc = read.spec.tensors["fc.weight"]
    wide = fc.model_copy(update={"shape": (8, 32), "stop": fc.start + 8 * 32 * 2})
    spec = read.spec.model_copy(update={"target_hidden_size": 16, "tensors": {**read.spec.tensors, "fc.weight": wide}})
    with pytest.raises(RefusedError, match="stock SGLang cannot serve") as error:
        find("sglang").plan(spec, read.checkpoint, Options())
    assert (error.value.where, error.value.measured) == ("hidden_size", 8)


def test_a_table_beside_a_full_vocabulary_is_left_out_when_it_maps_each_id_to_itself(tmp_path: Path) -> None:
    files = synthetic_draft(reduced=False)
    stored = files["model.safetensors"]
    header = parse(stored, len(stored))
    tensors, data = list(header.tensors), stored[header.size_bytes :]
    for offsets, sound in (([0] * 24, True), ([1] * 23 + [-23], False)):
        table = b"".join(item.to_bytes(8, "little", signed=True) for item in offsets)
        weights = encode([*tensors, Tensor("d2t", "I64", (24,), 0, 192)], {"format": "pt"}) + data + table
        source = MemorySource({**files, "model.safetensors": weights})
        for layout in ("speculators", "sglang", "specforge"):
            if sound:
                plan = plan_draft(read_draft(source), layout)
                assert "d2t" not in {tensor.name for tensor in plan.tensors()}
                assert any(item.name == "model.safetensors:d2t" for item in plan.dropped)
            else:
                with pytest.raises(RefusedError, match="d2t maps a full vocabulary"):
                    plan_draft(read_draft(source), layout)


def test_the_targets_name_is_asked_for_when_nothing_states_it(tmp_path: Path) -> None:
    files = synthetic_draft(reduced=False)
    flat = native_config(read_draft(MemorySource(files)).spec)
    del flat["spec_convert"]
    source = MemorySource({**files, "config.json": json.dumps(flat).encode()})
    with pytest.raises(RefusedError, match="does not name its target") as error:
        plan_draft(read_draft(source), "speculators")
    assert "--set verifier=ORG/NAME" in error.value.hint
    written = normalize_draft(source, tmp_path / "out", settings=Settings(verifier="org/name"))
    assert config_of(written.folder)["speculators_config"]["verifier"]["name_or_path"] == "org/name"


def test_unknown_tensors_are_refused_by_name() -> None:
    read = read_draft(MemorySource(synthetic_draft()))
    with pytest.raises(RefusedError, match=r"layers\.0\.self_attn\.sink"):
        find("speculators").plan(read.spec.model_copy(update={"unknown_tensors": ("layers.0.self_attn.sink",)}), read.checkpoint, _options())


@pytest.mark.parametrize(("changes", "message"), [({"quantization": "NVFP4"}, "quantized"), ({"attention_sinks": True}, "sink")])
def test_what_no_layout_carries_is_refused(changes: dict[str, Any], message: str) -> None:
    read = read_draft(MemorySource(synthetic_draft()))
    with pytest.raises(RefusedError, match=message):
        find("speculators").plan(read.spec.model_copy(update=changes), read.checkpoint, _options())


def test_side_files_travel_but_code_and_pickles_do_not(tmp_path: Path) -> None:
    files = {**synthetic_draft(), "model.bin": b"pickle", "sub/notes.md": b"x", ".hidden.json": b"{}", "tokenizer.model": b"\x00sp", "data.xyz": b"?"}
    written = normalize_draft(MemorySource(files), tmp_path / "out")
    assert sorted(path.name for path in written.folder.iterdir()) == [
        "LICENSE",
        "README.md",
        "config.json",
        "model.safetensors",
        "spec-convert.receipt.json",
        "tokenizer.json",
        "tokenizer.model",
    ]
    reasons = {item.name: item.why for item in written.receipt.predicate.dropped}
    assert reasons == {
        "config.py": "code; a rewrite carries none",
        "model.bin": "may hold a pickle",
        "t2d.npy": "may hold a pickle",
        "sub/notes.md": "in a subfolder",
        ".hidden.json": "a hidden file",
        "data.xyz": "not a known kind of text or tokenizer file",
        "model.safetensors:written_by": "header metadata is written anew",
        "config.json:auto_map": "it names code to run; a rewrite carries none",
    }


def test_an_old_release_saves_copies_of_the_targets_weights_and_they_are_dropped_with_the_reason(fixtures_folder: Path, tmp_path: Path) -> None:
    source = fixtures_folder / "library/0.7.0.2/vanilla-anchor-full"
    (tmp_path / "clean").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "clean" / name).write_bytes((source / name).read_bytes())
    read = read_draft(tmp_path / "clean")
    plan = plan_draft(read, "speculators")
    assert {item.name: item.why[:19] for item in plan.dropped if item.kind == "tensor"} == {
        "model.safetensors:embed_tokens.weight": "owned by the target",
        "model.safetensors:lm_head.weight": "owned by the target",
    }
    assert any("without a comparison" in note for note in plan.notes)
    compared = plan_draft(read, "speculators", target=fixtures_folder / "library/target")
    assert compared.notes == ()


def test_a_head_that_is_not_the_targets_is_not_dropped_silently(fixtures_folder: Path, tmp_path: Path) -> None:
    source = fixtures_folder / "library/0.7.0.2/vanilla-anchor-full"
    other = tmp_path / "other"
    other.mkdir()
    target = fixtures_folder / "library/target"
    (other / "config.json").write_bytes((target / "config.json").read_bytes())
    weights = bytearray((target / "model.safetensors").read_bytes())
    head = collect(open_source(str(target))).tensors["lm_head.weight"].tensor
    weights[head.start] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    (tmp_path / "clean").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "clean" / name).write_bytes((source / name).read_bytes())
    with pytest.raises(RefusedError, match="not the target's") as error:
        plan_draft(read_draft(tmp_path / "clean"), "speculators", target=other)
    assert error.value.measured == "1 of 96 sampled rows differ"


def test_an_unknown_layout_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="speculators"):
        find("gguf")
