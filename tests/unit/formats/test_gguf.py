"""llama.cpp drafts: metadata and tensor table in the normal form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drafts import GOOD, load, read, said
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.formats import detect
from speculators_convert.sources import MemorySource
from speculators_convert.spec import D2T, Anchor, AttentionKind, MarkovHead, MarkovKind


def with_metadata(name: str, change: Callable[[dict[str, Any]], None]) -> Checkpoint:
    checkpoint = load(name)
    file = checkpoint.gguf["draft.gguf"]
    metadata = dict(file.metadata)
    change(metadata)
    return replace(checkpoint, gguf={"draft.gguf": replace(file, metadata=metadata)})


def test_target_layers_are_inputs_and_legacy_ones_outputs() -> None:
    assert said(read(load("gguf-dspark-full")), "target_layer_ids") == [("[1, 9, 19, 29, 36]", "draft.gguf#/dflash.target_layers minus 1", True)]
    assert said(read(load("gguf-legacy-dspark")), "target_layer_ids") == [("[1, 9, 19, 29, 36]", "draft.gguf#/dspark.dspark.target_layers", True)]


def test_d2t_holds_target_ids() -> None:
    reading = read(load("gguf-dspark-reduced"))
    assert reading.spec.d2t is D2T.ABSOLUTE
    ids = np.frombuffer(load("gguf-dspark-reduced").payloads["d2t"], "<i8")
    assert (len(ids), bool(np.all(np.diff(ids) > 0)), int(ids[-1]) < 64) == (24, True, True)


def test_an_absent_layout_key_is_true_with_markov_tables_and_false_without() -> None:
    bare = read(with_metadata("gguf-dspark-full", lambda metadata: metadata.pop("dflash.sample_from_anchor")))
    assert (bare.spec.anchor, bare.spec.gamma) == (Anchor.SAMPLED, 7)
    assert said(bare, "anchor")[0][1] == "llama.cpp reads an absent sample_from_anchor as true"
    assert (read(load("gguf-dflash")).spec.anchor, read(load("gguf-dflash")).spec.gamma, read(load("gguf-dflash")).spec.markov) == (Anchor.BONUS, 15, None)
    assert "no Markov tables: a DFlash draft" in detect(load("gguf-dflash")).why


def test_tables_and_names_of_the_two_dialects_have_the_same_roles() -> None:
    current, legacy = read(load("gguf-dspark-full")).spec, read(load("gguf-legacy-dspark")).spec
    assert set(current.tensors) == set(legacy.tensors)
    assert current.unknown_tensors == legacy.unknown_tensors == ()
    assert current.tensors["layers.1.self_attn.o_proj.weight"].name == "blk.1.attn_output.weight"
    assert legacy.tensors["markov_head.markov_w1.weight"].name == "dspark.markov_head_a.weight"
    assert legacy.markov == MarkovHead(kind=MarkovKind.VANILLA, rank=4)


def test_window_pattern_and_causality() -> None:
    spec = read(load("gguf-dspark-reduced")).spec
    assert (spec.layer_types, spec.sliding_window, spec.sliding_causal) == ((AttentionKind.SLIDING,) * 2, 2048, True)
    bad = read(with_metadata("gguf-dspark-reduced", lambda metadata: metadata.update({"dflash.attention.sliding_window_pattern": [True]})))
    assert bad.spec.layer_types is None
    assert [(problem.subject, problem.expected) for problem in bad.problems] == [("dflash.attention.sliding_window_pattern", "one flag per layer")]


def test_rope_and_vocabulary_come_from_metadata() -> None:
    scaled = {
        "dflash.rope.scaling.type": "yarn",
        "dflash.rope.scaling.factor": 32.0,
        "dflash.rope.scaling.original_context_length": 64,
        "dflash.rope.dimension_sections": [2, 0, 0, 0],
    }
    rope = read(with_metadata("gguf-dspark-full", lambda metadata: metadata.update(scaled))).spec.rope
    assert (rope.theta, rope.type, rope.scaling, rope.ignored) == (1e6, "yarn", {"factor": 32.0, "original_max_position_embeddings": 64}, ("mrope_section",))
    assert {says for says, _, _ in said(read(load("gguf-dspark-full")), "vocab_size")} == {"64"}


def test_a_head_count_per_layer_that_is_uniform_is_one_number() -> None:
    reading = read(with_metadata("gguf-dspark-full", lambda metadata: metadata.update({"dflash.attention.head_count_kv": [1, 1]})))
    assert (reading.spec.num_key_value_heads, reading.problems) == (1, ())


def test_wrong_values_are_problems_under_the_files_own_keys() -> None:
    reading = read(with_metadata("gguf-dspark-full", lambda metadata: metadata.update({"dflash.block_size": "7", "dflash.target_layers": [], "tokenizer.ggml.mask_token_id": -1})))
    assert (reading.spec.gamma, reading.spec.target_layer_ids, reading.spec.mask_token_id) == (None, None, None)
    assert [(problem.file, problem.pointer) for problem in reading.problems] == [
        ("draft.gguf", "/dflash.block_size"),
        ("draft.gguf", "/dflash.target_layers"),
        ("draft.gguf", "/tokenizer.ggml.mask_token_id"),
    ]


def test_a_target_beside_its_draft_is_left_alone() -> None:
    draft = (GOOD / "gguf-dspark-full" / "draft.gguf").read_bytes()
    target = draft.replace(b"\x06\0\0\0\0\0\0\0dflash", b"\x06\0\0\0\0\0\0\0qwen35", 1)
    assert target != draft
    checkpoint = collect(MemorySource({"a-target.gguf": target, "draft.gguf": draft}))
    reading = read(checkpoint)
    assert {ref.file for ref in reading.spec.tensors.values()} == {"draft.gguf"}
    assert checkpoint.faults == ()


def test_another_architecture_is_no_draft() -> None:
    assert detect(with_metadata("gguf-dspark-full", lambda metadata: metadata.update({"general.architecture": "llama"}))).format is None
    assert detect(with_metadata("gguf-dspark-full", lambda metadata: metadata.pop("general.architecture"))).format is None


@pytest.mark.parametrize("cut", [0, 3, 23, 24, 200, -1])
def test_a_damaged_file_is_a_fault(cut: int) -> None:
    data = (GOOD / "gguf-dspark-full" / "draft.gguf").read_bytes()[:cut]
    checkpoint = collect(MemorySource({"draft.gguf": data}))
    assert checkpoint.faults[0].kind == "gguf-invalid"
    assert detect(checkpoint).format is None


def test_safetensors_come_before_a_gguf_in_the_same_folder() -> None:
    files = {path.name: path.read_bytes() for path in (GOOD / "deepspec-vanilla").iterdir()}
    checkpoint = collect(MemorySource({**files, "draft.gguf": b"GGUF"}))
    assert (checkpoint.gguf, checkpoint.faults) == ({}, ())
    assert read(checkpoint).spec.format == "deepspec"
