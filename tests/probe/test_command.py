"""`probe` on copies of the fixtures with one fact changed: contradicted, confirmed, or left open."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from command import spec_convert
from speculators_convert import api
from speculators_convert.probe import prove
from speculators_convert.results.probe import ProbeResult
from speculators_convert.results.smoke import SmokeOptions, SmokeResult
from speculators_convert.smoke import pair

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
FILES = ("--prompts", TRAINED / "prompts.jsonl", "--prompts", TRAINED / "texts.jsonl")
CPU_SECONDS = 60


def copy(name: str, folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
    shutil.copytree(TRAINED / name, folder)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def probe(folder: Path, *files: object, status: int) -> ProbeResult:
    outcome = spec_convert("probe", folder, "--target", TRAINED / "tiny-target", *(files or FILES), "--format", "json")
    assert outcome.status == status, outcome.stderr
    return ProbeResult.model_validate(outcome.json)


def test_an_untouched_file_is_confirmed_in_the_time_allowed(tmp_path: Path) -> None:
    began = time.process_time()
    result = probe(copy("tiny-bonus-reduced-vanilla", tmp_path / "draft"), status=0)
    assert time.process_time() - began < CPU_SECONDS
    assert (result.best, result.contradicts) == ("as stated", False)
    verdicts = {item.name: item.verdict for item in result.hypotheses}
    assert {name for name, verdict in verdicts.items() if verdict == "worse"} == {
        "anchor sampled", "layer ids -1", "layer ids +1", "d2t absolute", "d2t none", "mask token pad", "mask token eos", "theta by default", "Markov head one token late",
    }  # fmt: skip
    assert verdicts["causal in the block"] == "tie"
    assert result.checkpoint.files.keys() >= {"config.json", "model.safetensors"}
    worse = next(item for item in result.hypotheses if item.name == "layer ids -1")
    assert worse.interval is not None
    assert worse.interval[0] < (worse.difference or 0) < worse.interval[1] < 0


@pytest.mark.parametrize(
    ("name", "change", "best"),
    [
        ("tiny-anchor-full-vanilla", {"sample_from_anchor": False}, "anchor sampled"),
        ("tiny-bonus-reduced-vanilla", {"sample_from_anchor": True}, "anchor bonus"),
        ("tiny-anchor-reduced-gated", {"aux_hidden_state_layer_ids": [2, 3, 4]}, "layer ids -1"),
        ("tiny-bonus-reduced-vanilla", {"aux_hidden_state_layer_ids": [0, 1, 2]}, "layer ids +1"),
        ("tiny-bonus-reduced-vanilla", {"mask_token_id": 1}, "mask token mask"),
    ],
)
def test_a_config_with_one_wrong_fact_is_contradicted(name: str, change: dict[str, Any], best: str, tmp_path: Path) -> None:
    result = probe(copy(name, tmp_path / "draft", lambda config: config.update(change)), status=1)
    assert (result.best, result.contradicts) == (best, True)
    assert any("contradicts the file" in reason for reason in result.reasons)


def test_texts_alone_are_enough_for_a_flipped_anchor(tmp_path: Path) -> None:
    folder = copy("tiny-anchor-full-vanilla", tmp_path / "draft", lambda config: config.update(sample_from_anchor=False))
    result = probe(folder, "--prompts", TRAINED / "texts.jsonl", status=1)
    assert result.best == "anchor sampled"
    flipped = next(item for item in result.hypotheses if item.name == "anchor sampled")
    assert flipped.reading == "anchor sampled, gamma 6"
    assert "gamma 5" in next(item.reading for item in result.hypotheses if item.name == "as stated")


def test_absolute_ids_on_disk_are_contradicted(tmp_path: Path) -> None:
    folder = copy("tiny-anchor-reduced-gated", tmp_path / "draft")
    tensors = load_file(folder / "model.safetensors")
    tensors["d2t"] += torch.arange(len(tensors["d2t"]))
    save_file(tensors, folder / "model.safetensors")
    result = probe(folder, status=1)
    assert result.contradicts
    assert "absolute ids, where the format has offsets" in result.reasons[0]
    assert {item.verdict for item in result.hypotheses if item.name == "d2t offset"} <= {"worse", "impossible"}


def test_a_fact_that_the_file_leaves_open_is_settled_and_not_contradicted(tmp_path: Path) -> None:
    def forget(config: dict[str, Any]) -> None:
        del config["mask_token_id"]

    result = probe(copy("tiny-bonus-reduced-vanilla", tmp_path / "draft", forget), status=0)
    assert not result.contradicts
    assert any("mask_token_id" in reason or "mask token" in reason for reason in result.reasons)


def test_the_built_in_texts_go_through_the_targets_tokenizer_and_the_answer_is_also_text(tmp_path: Path) -> None:
    folder = copy("tiny-anchor-full-vanilla", tmp_path / "draft")
    outcome = spec_convert("probe", folder, "--target", TRAINED / "tiny-target", "--out", tmp_path / "probe.json")
    assert outcome.status == 0
    assert "as stated" in outcome.stdout
    assert "no reading is better than the file's own" in outcome.stdout
    result = ProbeResult.model_validate_json((tmp_path / "probe.json").read_bytes())
    assert result.texts == 16
    assert next(item.verdict for item in result.hypotheses if item.name == "anchor bonus") == "worse"


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [('{"input_ids": [5, 6, 7]}', 2, "too short for a probe"), ('{"input_ids": [5, 1024]}', 4, "no embedding in the target"), ("{", 2, "not JSON")],
)
def test_texts_that_cannot_be_used_are_refused(lines: str, status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(lines)
    outcome = spec_convert("probe", TRAINED / "tiny-anchor-full-vanilla", "--target", TRAINED / "tiny-target", "--prompts", tmp_path / "texts.jsonl")
    assert outcome.status == status
    assert message in outcome.stderr
    assert outcome.stdout == ""


def test_a_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = copy("tiny-anchor-full-vanilla", tmp_path / "draft")
    outcome = spec_convert("probe", folder)
    assert outcome.status == 4
    assert "pass --target" in outcome.stderr


@pytest.fixture
def bare_target(tmp_path: Path) -> Path:
    """A target without a tokenizer, for which transformers makes an empty one of the model's kind."""
    return Path(shutil.copytree(TRAINED / "tiny-target", tmp_path / "target", ignore=shutil.ignore_patterns("tokenizer*")))


def test_a_target_without_a_tokenizer_is_said_to_have_none(bare_target: Path) -> None:
    outcome = spec_convert("probe", TRAINED / "tiny-anchor-full-vanilla", "--target", bare_target)
    assert outcome.status == 4
    assert "tokenizer gives no token" in outcome.stderr
    assert "give the prompts as input_ids" in outcome.stderr


def out_of_memory(*_: object) -> ProbeResult:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB.")


def test_the_anchor_claim_of_a_smoke_run_reads_the_texts_else_the_runs_own_prompts(bare_target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either, or without memory for it, the run's other claims stand."""
    draft, prompts = TRAINED / "tiny-anchor-full-vanilla", str(TRAINED / "prompts.jsonl")
    inspection = api.look(str(draft))
    options = SmokeOptions(target=str(bare_target), engine="reference", prompts=prompts, max_new_tokens=8)
    result = api.smoke(str(draft), options=options)

    def claimed(**changed: str | None) -> SmokeResult:
        return api._with_anchor_probe(result, inspection, options.model_copy(update=changed), lambda *_: None)

    name = "anchor: no other layout drafts better than the file's"
    assert next(item.holds for item in claimed().comparisons if item.name == name)
    assert next(item.holds for item in claimed(target=str(pair.TARGET), prompts=None).comparisons if item.name == name)  # the pair of the package has a tokenizer
    without = claimed(prompts=None)
    assert name not in {item.name for item in without.comparisons}
    assert "built-in texts: " in without.environment["anchor probe"]
    monkeypatch.setattr(prove, "prove", out_of_memory)
    found = claimed()
    assert name not in {item.name for item in found.comparisons}
    assert (found.verdict, found.environment["anchor probe"].startswith("not run: built-in texts: CUDA out of memory")) == (result.verdict, True)
