"""Which format a checkpoint is in: tensors before labels, one answer, and no answer for what is no draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drafts import ABSENT, GOOD, load, read, said
from speculators_convert.checkpoint import collect
from speculators_convert.formats import FORMATS, detect
from speculators_convert.formats.native import algorithm_of
from speculators_convert.sources import MemorySource
from speculators_convert.spec import Anchor, MarkovHead, MarkovKind

FOLDERS = sorted(path.name for path in GOOD.iterdir() if path.is_dir())
LABELS = ["Qwen3DSparkModel", "DSparkDraftModel", "DFlashDraftModel", "LlamaForCausalLM"]


def test_the_order_is_from_the_surest_mark_to_the_plainest() -> None:
    """Magic bytes, own keys, own tensor names, then what is left: a flat config."""
    assert [item.name for item in FORMATS] == ["gguf", "speculators", "nemotron", "bundled", "torchspec", "modelopt", "specforge", "dflash", "nemo", "deepspec"]


def test_formats_have_their_own_place_in_the_order() -> None:
    assert len({item.order for item in FORMATS}) == len(FORMATS)
    assert len({item.name for item in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("folder", [name for name in FOLDERS if not name.startswith(("gguf", "nemo-", "bundled"))])
def test_a_wrong_label_changes_neither_the_heads_nor_the_taps(folder: str, label: str) -> None:
    plain, relabelled = read(load(folder)), read(load(folder, {"architectures": [label]}))
    assert relabelled.spec.markov == plain.spec.markov
    assert relabelled.spec.target_layer_ids == plain.spec.target_layer_ids
    claimed = algorithm_of(label)
    if claimed and said(relabelled, "algorithm")[0][0] != claimed:
        assert (claimed, "config.json#/architectures", False) in said(relabelled, "algorithm")


@pytest.mark.parametrize("folder", ["specforge-current", "modelopt-vanilla", "deepspec-vanilla", "torchspec-dspark", "nemotron-bf16"])
def test_markov_tables_make_a_dspark_draft_even_when_the_config_denies_it(folder: str) -> None:
    change = {"architectures": ["DFlashDraftModel"], "markov_rank": 0, "dflash_config.markov_rank": 0, "dflash_config.projector_type": "dflash", "dspark_markov_rank": 0}
    reading = read(load(folder, change))
    assert reading.spec.markov == MarkovHead(kind=MarkovKind.VANILLA, rank=4)
    assert {says for says, _, _ in said(reading, "markov_rank")} == {"4", "0"}


def test_a_head_that_the_config_asks_for_but_the_file_lacks_stays_asked_for() -> None:
    """Tables that were lost must not turn a DSpark draft into a DFlash one: the missing tensors are an error elsewhere."""
    reading = read(load("specforge-current", drop="markov_head"))
    assert (reading.spec.format, reading.spec.markov) == ("specforge", MarkovHead(kind=MarkovKind.VANILLA, rank=4))
    assert [(says, decides) for says, _, decides in said(reading, "algorithm")] == [("dflash", True), ("dspark", False), ("dspark", False)]


@pytest.mark.parametrize("folder", ["specforge-current", "deepspec-vanilla", "modelopt-vanilla"])
def test_without_tables_and_without_a_rank_it_is_dflash(folder: str) -> None:
    change = {"markov_rank": ABSENT, "dflash_config.markov_rank": 0, "dflash_config.projector_type": ABSENT}
    reading = read(load(folder, change, drop="markov"))
    assert (reading.spec.format, reading.spec.markov) == ("dflash", None)


def test_z_lab_and_deepspec_without_markov_head_differ_in_layout() -> None:
    z_lab, deepspec = read(load("dflash-z-lab")).spec, read(load("dflash-deepspec")).spec
    assert (z_lab.anchor, z_lab.gamma, z_lab.query_slots) == (Anchor.BONUS, 15, 16)
    assert (deepspec.anchor, deepspec.gamma, deepspec.query_slots) == (Anchor.SAMPLED, 7, 7)
    assert any("no Markov tensors" in why for why in detect(load("dflash-z-lab")).why)


def test_query_zero_predicts_next_states_the_anchor() -> None:
    reading = read(load("dflash-deepspec"))
    assert said(reading, "anchor") == [("sampled", "config.json#/query_zero_predicts_next", True)]
    assert read(load("dflash-deepspec", {"query_zero_predicts_next": ABSENT})).spec.anchor is Anchor.SAMPLED


@pytest.mark.parametrize(("ids", "inputs"), [("bundled-v4", False), ("bundled-v4.1", True)])
def test_bundled_ids_are_outputs_before_v4_1_and_inputs_after(ids: str, inputs: bool) -> None:
    spec = read(load(ids)).spec
    assert spec.bundled is not None
    assert spec.bundled.layer_ids_are_inputs is inputs
    assert spec.target_layer_ids == ((36, 37, 38) if inputs else (40, 41, 42))


def test_bundled_tensors_are_the_drafts_own() -> None:
    spec = read(load("bundled-v4")).spec
    assert spec.tensors["fc.weight"].name == "mtp.0.main_proj.weight"
    assert spec.tensors["norm.weight"].name == "mtp.2.norm.weight"
    assert "lm_head.weight" not in spec.tensors
    assert spec.bundled is not None
    assert (spec.bundled.stages, spec.num_hidden_layers, spec.num_target_layers) == (3, 3, 43)
    assert spec.bundled.tensor_bytes < load("bundled-v4").tensor_bytes


def test_bundled_keys_inside_a_text_config() -> None:
    keys = {"dspark_block_size": 5, "dspark_markov_rank": 4, "dspark_noise_token_id": 6, "dspark_target_layer_ids": [40, 41, 42]}
    reading = read(load("bundled-v4", {**dict.fromkeys(keys, ABSENT), "text_config": keys}))
    assert (reading.spec.format, reading.spec.gamma, reading.spec.target_layer_ids) == ("bundled", 5, (40, 41, 42))


STATED = {
    "sample_from_anchor": False,
    "gamma": 3,
    "mask_token_id": 9,
    "rope_theta": 5.0,
    "sliding_window": 64,
    "sliding_window_non_causal": True,
    "target_layer_ids": (0, 1, 2),
    "max_position_embeddings": 77,
    "verifier": "org/other",
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_the_user_states_wins_in_every_format_and_is_evidence(folder: str) -> None:
    reading = read(load(folder), **STATED)
    spec = reading.spec
    assert (spec.anchor, spec.gamma, spec.query_slots, spec.mask_token_id, spec.rope.theta) == (Anchor.BONUS, 3, 4, 9, 5.0)
    assert (spec.sliding_window, spec.target_layer_ids, spec.max_position_embeddings, spec.verifier.name_or_path) == (64, (0, 1, 2), 77, "org/other")
    assert spec.sliding_causal is False
    by_user = {item.source.removeprefix("--set ") for item in spec.evidence if item.source.startswith("--set ") and item.decides}
    assert by_user == set(STATED) - ({"sliding_window_non_causal"} if folder.startswith("bundled") else set())
    assert not [item for item in spec.evidence if item.fact == "anchor_disputed"]


def test_a_quantized_gguf_names_its_main_type() -> None:
    checkpoint = load("gguf-dspark-full")
    file = checkpoint.gguf["draft.gguf"]
    tensors = tuple(replace(tensor, dtype="Q8_0") if tensor.name.startswith("blk") and "norm" not in tensor.name else tensor for tensor in file.tensors)
    spec = read(replace(checkpoint, gguf={"draft.gguf": replace(file, tensors=tensors)})).spec
    assert (spec.quantization, spec.dtype) == ("GGUF Q8_0", "bfloat16")
    assert read(checkpoint).spec.quantization is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": b"{}"},
        {"config.json": b"[]"},
        {"config.json": b"not json"},
        {"config.json": b'{"model_type":"qwen3","architectures":["Qwen3ForCausalLM"]}'},
        {"config.json": b'{"speculators_model_type":"eagle3","transformer_layer_config":{}}'},
        {"config.json": b'{"speculators_model_type":["dspark"]}'},
        {"config.json": b'{"dflash_config":3,"dspark_config":[],"target_layer_ids":null}'},
        {"x.gguf": b"GGUF"},
    ],
)
def test_what_is_no_draft_is_not_recognised(files: dict[str, bytes]) -> None:
    detection = detect(collect(MemorySource(files)))
    assert detection.format is None or detection.format.name == "deepspec"
    assert (detection.format is None) == (detection.why == ())
