"""What is refused before SGLang loads anything, with which words. Needs no SGLang."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sglang_harness.environment import LIBRARY, TRAINED

from speculators_convert.errors import RefusedError
from speculators_convert.sglang_plugin import release
from speculators_convert.sglang_plugin.preflight import Target, check_target, read_draft

REDUCED = TRAINED / "tiny-bonus-reduced-vanilla"
TARGET = Target("tiny-target", "Qwen3ForCausalLM", 1024, 128, 4)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A copy of a reduced draft to spoil."""
    shutil.copytree(REDUCED, tmp_path / "draft")
    return tmp_path / "draft"


def spoil_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def spoil_table(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    """Change the values of an integer table in place."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + length])[name]
    start, stop = (8 + length + offset for offset in entry["data_offsets"])
    values = np.frombuffer(bytes(data[start:stop]), {"I64": np.int64, "BOOL": np.uint8}[entry["dtype"]]).copy()
    change(values)
    data[start:stop] = values.tobytes()
    path.write_bytes(data)


def rename_tensor(folder: Path, old: str, new: str) -> None:
    """Give a tensor another name of the same length: one tensor is missing, one unknown."""
    assert len(old) == len(new)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    assert data.count(f'"{old}"'.encode()) == 1
    path.write_bytes(data.replace(f'"{old}"'.encode(), f'"{new}"'.encode()))


def set_value(index: int, value: int) -> Callable[[np.ndarray], None]:
    def change(values: np.ndarray) -> None:
        values[index] = value

    return change


def refusal(folder: Path) -> str:
    with pytest.raises(RefusedError) as caught:
        read_draft(folder)
    return str(caught.value)


@pytest.mark.parametrize("name", ["tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal"])
def test_sound_drafts_pass(name: str) -> None:
    check_target(read_draft(TRAINED / name), TARGET, TRAINED / name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_value(511, 600), "DSP105"),
        (set_value(0, -5), "DSP105"),
        (lambda values: set_value(10, int(values[11]) + 1)(values), "DSP107"),
    ],
    ids=["past the end", "below zero", "twice"],
)
def test_mapping_out_of_range_or_order(draft: Path, change: Callable[[np.ndarray], None], words: str) -> None:
    spoil_table(draft, "d2t", change)
    assert words in refusal(draft)


def test_mapping_of_another_shape(draft: Path) -> None:
    """The same bytes, said to be one table of twice the length."""
    path = draft / "model.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header["d2t"] |= {"shape": [1024], "dtype": "I32"}
    changed = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + data[8 + length :])
    text = refusal(draft)
    assert "DSP102" in text
    assert "1024" in text
    assert "512" in text


def test_tables_that_disagree(draft: Path) -> None:
    """t2d is not used for drafting; it still tells that one of the two is wrong."""
    spoil_table(draft, "t2d", lambda values: values.__setitem__(slice(0, 4), 1))
    assert "DSP108" in refusal(draft)


def test_reduced_vocabulary_without_mapping(draft: Path) -> None:
    rename_tensor(draft, "d2t", "xxx")
    assert "a reduced vocabulary needs d2t" in refusal(draft)


@pytest.mark.parametrize("name", ["markov_head.markov_w2.weight", "layers.1.mlp.up_proj.weight", "lm_head.weight", "fc.weight"])
def test_missing_tensor(draft: Path, name: str) -> None:
    rename_tensor(draft, name, "x" * len(name))
    text = refusal(draft)
    assert "DSP301" in text
    assert name in text


def test_unknown_tensor(draft: Path) -> None:
    rename_tensor(draft, "confidence_head.proj.bias", "confidence_head.proj.bia5")
    assert "tensors that are no part of a DSpark draft" in refusal(draft)


@pytest.mark.parametrize("changes", [{"sample_from_anchor": True}, {"block_size": 5}], ids=["anchor", "block_size"])
def test_geometry_that_contradicts_itself(draft: Path, changes: dict) -> None:
    """speculative_tokens says 6, as block_size 7 with a bonus anchor does."""
    spoil_config(draft, **changes)
    text = refusal(draft)
    assert "DSP203" in text
    assert "6" in text


@pytest.mark.parametrize(("ids", "words"), [([0, 1, 2], "the embeddings, cannot be captured"), ([2, 1, 3], "DSP212"), ([1, 2], "DSP214")])
def test_layer_ids_that_cannot_be_captured(draft: Path, ids: list[int], words: str) -> None:
    spoil_config(draft, aux_hidden_state_layer_ids=ids)
    assert words in refusal(draft)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target("other", "Qwen3ForCausalLM", 2048, 128, 4), "vocab_size: the draft was made for another target; measured 1024; expected 2048, that of other"),
        (Target("other", "Qwen3ForCausalLM", 1024, 256, 4), "hidden_size: the draft was made for another target; measured 128; expected 256, that of other"),
        (Target("other", "Qwen3ForCausalLM", 1024, 128, 3), "SGLang cannot capture this layer; measured 3; expected ids up to 2 for a Qwen3ForCausalLM of 3 layers"),
    ],
)
def test_another_target(target: Target, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_target(read_draft(REDUCED), target, REDUCED)
    assert words in str(caught.value)


def test_last_layer_of_a_target_class_that_captures_it() -> None:
    check_target(read_draft(REDUCED), Target("other", "GptOssForCausalLM", 1024, 128, 3), REDUCED)


def test_drafts_without_markov_head_or_tapping_the_embeddings(tmp_path: Path) -> None:
    for name, words in (("no-markov", "there is no Markov head"), ("taps-edge", "the embeddings, cannot be captured")):
        shutil.copytree(LIBRARY / "0.9.0" / name, tmp_path / name)
        assert words in refusal(tmp_path / name)


def test_releases() -> None:
    assert release.problem("0.5.23", allowed=False) is None
    assert release.problem("0.5.24", allowed=True) is None
    words = "SGLang 0.5.24 is installed, tested with 0.5.23 only: install sglang==0.5.23, or set SPEC_CONVERT_SGLANG_UNTESTED=1 to try it"
    assert release.problem("0.5.24", allowed=False) == words
    assert str(release.problem(None, allowed=True)).startswith("no SGLang is installed")
