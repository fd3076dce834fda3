"""Any JSON value under any key, any shape of any tensor: a reading with problems, or no format; never an exception."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafts import GOOD, load
from speculators_convert.checkpoint import Checkpoint, Location, collect
from speculators_convert.container.gguf import LongArray
from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.formats import FORMATS, detect
from speculators_convert.sources import MemorySource
from speculators_convert.spec import DraftSpec, Settings, expected_shapes

FOLDERS = sorted(path.name for path in GOOD.iterdir() if path.is_dir())
SAFETENSORS = [name for name in FOLDERS if not name.startswith("gguf")]
ONE_OF_EACH = [
    "speculators-0.9-anchor-reduced",
    "deepspec-sglang-bonus",
    "specforge-current",
    "modelopt-vanilla",
    "nemotron-bf16",
    "torchspec-dspark",
    "nemo-glm",
    "dflash-z-lab",
    "bundled-v4",
]
GGUFS = [name for name in FOLDERS if name.startswith("gguf")]
EXTRA = [
    "aux_hidden_state_layer_ids",
    "block_size",
    "causal",
    "dflash_config",
    "dflash_config.block_size",
    "dflash_config.shift_label",
    "dspark_config",
    "dspark_config.block_size",
    "dspark_noise_token_id",
    "dspark_target_layer_ids",
    "draft_vocab_size",
    "dtype",
    "eagle_aux_hidden_state_layer_ids",
    "hf_quant_config",
    "is_causal",
    "layer_types",
    "quantization_config",
    "quantization_config.quant_algo",
    "query_zero_predicts_next",
    "rope_parameters",
    "rope_parameters.full_attention",
    "rope_scaling",
    "sample_from_anchor",
    "sliding_window",
    "spec_convert",
    "spec_convert.verifier",
    "target_layer_ids",
    "text_config",
    "torch_dtype",
    "transformer_layer_config",
    "use_sliding_window",
    "max_window_layers",
]

scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, 1, -1, 2, 7, 8, 1 << 31, 1 << 63, -(1 << 64), 10**30, 0.0, -0.5, 1e-300, 1e308, "", "vanilla", "full_attention", "0.6.0", "0.", "...", "DFlash", "\u0000", "\U0001f600"]
    )
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["rope_theta", "block_size", "target_layer_ids", "full_attention", "x"]), inner, max_size=3),
    max_leaves=6,
)


@cache
def paths(name: str) -> list[str]:
    """Dotted paths of each key in a folder's config, and keys of other packagings."""
    found = list(EXTRA)

    def walk(table: dict[str, Any], prefix: str) -> None:
        for key, value in table.items():
            found.append(prefix + key)
            if isinstance(value, dict) and key:
                walk(value, f"{prefix}{key}.")

    walk(json.loads((GOOD / name / "config.json").read_text()), "")
    return sorted(set(found))


@cache
def original(name: str) -> Checkpoint:
    return load(name)


def changed(config: dict[str, Any], dotted: str, value: object) -> None:
    *parents, key = dotted.split(".")
    for parent in parents:
        inner = config.get(parent)
        if not isinstance(inner, dict):
            inner = config[parent] = {}
        config = inner
    config[key] = value


def check(checkpoint: Checkpoint) -> DraftSpec | None:
    """Each format that takes the checkpoint reads it to a value that can be written as JSON."""
    spec = None
    for candidate in FORMATS:
        why = candidate.matches(checkpoint)
        assert isinstance(why, tuple)
        if not why:
            continue
        reading = candidate.read(checkpoint, Settings())
        assert reading.spec.format == candidate.name
        assert reading.spec.model_dump_json()
        assert expected_shapes(reading.spec) is not None
        for problem in reading.problems:
            assert problem.message
            assert problem.pointer
            assert problem.measured is not None
        spec = spec or reading.spec
    detection = detect(checkpoint)
    assert (detection.format.name if detection.format else None) == (spec.format if spec else None)
    return spec


@settings(max_examples=max(500, settings().max_examples))
@given(st.sampled_from(SAFETENSORS), st.data())
def test_any_value_under_any_key(name: str, data: st.DataObject) -> None:
    config = json.loads(json.dumps(dict(original(name).config)))
    for dotted in data.draw(st.lists(st.sampled_from(paths(name)), min_size=1, max_size=3)):
        changed(config, dotted, data.draw(values))
    check(replace(original(name), documents={"config.json": config}))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_key_alone_with_a_value_of_each_type(name: str) -> None:
    for dotted in paths(name):
        for value in (None, True, -1, 0, 1.5, 10**30, "", "x", [], [None], {}, {"x": []}):
            config = json.loads(json.dumps(dict(original(name).config)))
            changed(config, dotted, value)
            check(replace(original(name), documents={"config.json": config}))


@given(st.sampled_from(GGUFS), st.data())
def test_any_value_under_any_gguf_key(name: str, data: st.DataObject) -> None:
    file = original(name).gguf["draft.gguf"]
    metadata = dict(file.metadata)
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        metadata[key] = data.draw(scalars | st.lists(scalars, max_size=4) | st.just(LongArray("string", 5000)))
    check(replace(original(name), gguf={"draft.gguf": replace(file, metadata=metadata)}))


@given(st.sampled_from(SAFETENSORS), st.data())
def test_any_shape_of_any_tensor(name: str, data: st.DataObject) -> None:
    tensors = dict(original(name).tensors)
    for key in data.draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=4)):
        shape = tuple(data.draw(st.lists(st.integers(0, 70) | st.just(1 << 40), max_size=4)))
        tensor = replace(tensors[key].tensor, shape=shape, dtype=data.draw(st.sampled_from(sorted(DTYPE_BITS))))
        tensors[key] = Location(tensors[key].file, tensor)
    check(replace(original(name), tensors=tensors, payloads={}))


@given(st.data())
def test_any_tensor_names(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SAFETENSORS))
    words = st.sampled_from(
        ["model", "layers", "0", "9999", "norm", "weight", "mtp", "markov_head", "markov_w1", "logit_head", "fc", "blk", "embed", "", "context_proj", "confidence_proj"]
    )
    renamed = {data.draw(st.lists(words, min_size=1, max_size=5).map(".".join)): location for location in original(name).tensors.values()}
    check(replace(original(name), tensors=renamed, payloads={}))


@given(st.binary(max_size=60), st.sampled_from(SAFETENSORS), st.integers(0, 400))
def test_a_config_with_damaged_bytes_is_a_fault_or_a_reading(junk: bytes, name: str, at: int) -> None:
    files = {path.name: path.read_bytes() for path in (GOOD / name).iterdir()}
    config = files["config.json"]
    checkpoint = collect(MemorySource({**files, "config.json": config[:at] + junk + config[at + 1 :]}))
    check(checkpoint)


@pytest.mark.parametrize("name", SAFETENSORS)
def test_a_config_without_weights_cannot_ask_for_endless_layers(name: str) -> None:
    """`num_hidden_layers` is only believed up to a bound: each layer is listed somewhere."""
    for place in ("", "transformer_layer_config.", "text_config."):
        config = json.loads(json.dumps(dict(original(name).config)))
        changed(config, place + "num_hidden_layers", (1 << 63) - 1)
        spec = check(replace(original(name), documents={"config.json": config}, tensors={}, payloads={}))
        assert spec is None or spec.num_hidden_layers in (None, 2)


def test_problems_name_the_key_and_the_value() -> None:
    checkpoint = load(
        "specforge-current", {"block_size": "7", "dflash_config.target_layer_ids": [1, "2"], "rms_norm_eps": 0, "dflash_config.markov_head_type": "gru", "use_sliding_window": 1}
    )
    found = detect(checkpoint).format
    assert found is not None
    problems = {problem.pointer: (problem.measured, problem.expected) for problem in found.read(checkpoint, Settings()).problems}
    assert problems == {
        "/block_size": ("'7'", "an integer of at least 1"),
        "/dflash_config/target_layer_ids": ("[1, '2']", "a list of integers"),
        "/rms_norm_eps": ("0", "a positive number"),
        "/dflash_config/markov_head_type": ("'gru'", "one of vanilla, gated, rnn"),
    }
