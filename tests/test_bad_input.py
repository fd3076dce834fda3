"""Bad input over the command line: a stable code or a documented exit status, a message with what to do, no traceback, nothing written."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import BONUS, FULL, TARGET, copy, edit_config, read_tensors, shard, write_tensors
from command import Outcome, spec_convert


def _no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def _header_beyond(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 50_000_000) + path.read_bytes()[8:])


def _truncated_shard(folder: Path) -> None:
    shard(folder)
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def _missing_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()


def _missing_tensor(folder: Path) -> None:
    shard(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["layers.9.input_layernorm.weight"] = "model-00001-of-00003.safetensors"
    path.write_text(json.dumps(index))


def _text(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def _key(key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit_config(folder, lambda config: config.update({key: value}))

    return change


BROKEN = {
    "empty folder": (_empty, "config.json"),
    "no config": (_no_config, "config.json"),
    "truncated file": (_truncated, "model.safetensors"),
    "header larger than the file": (_header_beyond, "model.safetensors"),
    "truncated shard": (_truncated_shard, "model-00002-of-00003.safetensors"),
    "index names a missing shard": (_missing_shard, "model-00002-of-00003.safetensors"),
    "index names a missing tensor": (_missing_tensor, "layers.9.input_layernorm.weight"),
    "config is not JSON": (_text("config.json", "{nope"), "config.json"),
    "config is a list": (_text("config.json", "[1, 2]"), "config.json"),
    "config is a string": (_text("config.json", '"dspark"'), "config.json"),
    "config nests too deeply": (_text("config.json", "[" * 200_000), "config.json"),
    "block_size is text": (_key("block_size", "6"), "block_size"),
    "block_size is zero": (_key("block_size", 0), "block_size"),
    "block_size is huge": (_key("block_size", 10**30), "block_size"),
    "mask_token_id is a list": (_key("mask_token_id", [2]), "mask_token_id"),
    "layer ids are text": (_key("aux_hidden_state_layer_ids", "1,2,3"), "aux_hidden_state_layer_ids"),
    "sample_from_anchor is a number": (_key("sample_from_anchor", 1), "sample_from_anchor"),
    "markov_head_type is unknown": (_key("markov_head_type", "lstm"), "markov_head_type"),
    "the backbone is a list": (_key("transformer_layer_config", []), "transformer_layer_config"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_checkpoint(name: str, tmp_path: Path) -> None:
    change, subject = BROKEN[name]
    folder = copy(FULL, tmp_path / "draft")
    change(folder)
    before = sorted(path.name for path in tmp_path.iterdir())
    inspected = spec_convert("inspect", folder, "--format", "json")
    errors = [finding for finding in inspected.json["findings"] if finding["severity"] == "error"]
    assert inspected.status == 1
    assert errors
    assert any(subject in " ".join((finding["subject"], finding["file"], finding["measured"], finding["message"], finding["pointer"])) for finding in errors)
    for finding in errors:
        assert finding["message"]
        assert finding["hint"]
    rewritten = spec_convert("normalize", folder, "--out", tmp_path / "out", "--format", "json")
    assert rewritten.status == 1
    assert rewritten.json["error"]["hint"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    for outcome in (inspected, rewritten):
        assert "Traceback" not in outcome.stdout + outcome.stderr


def _other_target(folder: Path, key: str, value: int) -> Path:
    """A target of another size: config, and for the vocabulary the rows of embedding and head too."""
    if key == "vocab_size":
        tables = ("lm_head.weight", "model.embed_tokens.weight")
        tensors = {
            name: (entry.dtype, (value, *entry.shape[1:]), data * (value // entry.shape[0])) if name in tables else (entry.dtype, entry.shape, data)
            for name, (entry, data) in read_tensors(folder / "model.safetensors").items()
        }
        write_tensors(folder / "model.safetensors", tensors)
    return edit_config(folder, lambda config: config.update({key: value}))


@pytest.mark.parametrize(("key", "value"), [("vocab_size", 2048), ("hidden_size", 256)])
def test_target_of_another_size(key: str, value: int, tmp_path: Path) -> None:
    target = _other_target(copy(TARGET, tmp_path / "target"), key, value)
    outcome = spec_convert("inspect", BONUS, "--target", target, "--format", "json")
    errors = [finding for finding in outcome.json["findings"] if finding["severity"] == "error"]
    assert outcome.status == 1
    assert any(str(value) in finding["measured"] + finding["expected"] for finding in errors)
    refused = spec_convert("normalize", BONUS, "--target", target, "--out", tmp_path / "out")
    assert (refused.status, (tmp_path / "out").exists()) == (1, False)


def test_head_rows_of_another_target(tmp_path: Path) -> None:
    target = copy(TARGET, tmp_path / "target")
    tensors = read_tensors(target / "model.safetensors")
    changed = {name: (entry.dtype, entry.shape, data[::-1] if name == "lm_head.weight" else data) for name, (entry, data) in tensors.items()}
    write_tensors(target / "model.safetensors", changed)
    outcome = spec_convert("inspect", BONUS, "--target", target, "--format", "json")
    errors = [finding for finding in outcome.json["findings"] if finding["severity"] == "error"]
    assert outcome.status == 1
    assert any("lm_head" in finding["subject"] + finding["message"] for finding in errors)


def _refused(outcome: Outcome, status: int, *words: str) -> None:
    assert outcome.status == status
    assert all(word in outcome.stderr for word in words), outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert outcome.stdout == ""


def test_reference_that_is_not_there(tmp_path: Path) -> None:
    for command in (("inspect",), ("normalize", "--out", tmp_path / "out"), ("smoke",)):
        _refused(spec_convert(*command, tmp_path / "nowhere"), 3, "nowhere", "do ")


def test_reference_that_is_a_file() -> None:
    _refused(spec_convert("inspect", FULL / "config.json"), 2, "folder", "do ")


def test_out_that_exists(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    outcome = spec_convert("normalize", FULL, "--out", tmp_path / "out")
    assert outcome.status in (2, 3)
    assert "exists" in outcome.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_out_inside_the_source(tmp_path: Path) -> None:
    folder = copy(FULL, tmp_path / "draft")
    outcome = spec_convert("normalize", folder, "--out", folder / "out")
    assert outcome.status == 2
    assert "inside" in outcome.stderr
    assert not (folder / "out").exists()


def test_undecided_anchor_is_refused_with_the_flag(tmp_path: Path) -> None:
    def forget(config: dict[str, Any]) -> None:
        del config["sample_from_anchor"], config["speculators_version"]
        config["speculators_config"]["proposal_methods"] = []

    folder = edit_config(copy(FULL, tmp_path / "draft"), forget)
    report = spec_convert("inspect", folder, "--format", "json")
    assert (report.status, report.json["spec"]["anchor"], report.json["spec"]["gamma"]) == (1, None, None)
    _refused(spec_convert("normalize", folder, "--out", tmp_path / "out"), 1, "sample_from_anchor=")
    stated = spec_convert("normalize", folder, "--out", tmp_path / "out", "--set", "sample_from_anchor=true")
    assert stated.status == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["sample_from_anchor"] is True


def test_reduced_vocabulary_is_refused_for_stock_sglang(tmp_path: Path) -> None:
    _refused(spec_convert("normalize", BONUS, "--layout", "sglang", "--out", tmp_path / "out"), 1, "sglang-dense")
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
@pytest.mark.parametrize("line", ["{", "[1]", '{"input_ids": "x"}', '{"input_ids": []}', '{"other": 1}', '{"input_ids": [99999]}', '{"input_ids": [-1]}'])
def test_bad_prompt_file(line: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"input_ids": [5, 6]}\n' + line + "\n")
    outcome = spec_convert("smoke", FULL, "--target", TARGET, "--prompts", prompts)
    assert outcome.status in (2, 4)
    assert "Traceback" not in outcome.stderr
    assert outcome.stderr or "not-run" in outcome.stdout


def test_output_file_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    outcome = spec_convert("smoke", FULL, "--target", TARGET, "--max-new-tokens", "4", "--out", tmp_path / "no" / "where.json")
    assert outcome.status == 3
    assert "cannot write" in outcome.stderr


@pytest.mark.parametrize("words", [["inspect", str(FULL)], ["explain"], ["--version"]])
def test_an_output_that_is_full_is_an_error_with_a_status(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "speculators_convert", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert "cannot write the answer" in done.stderr
    assert "Traceback" not in done.stderr
