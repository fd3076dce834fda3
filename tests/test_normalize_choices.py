"""Choices of `normalize` and the commands that go with them, over the command line: rank files, dense rewrite, reduced vocabulary, diff, doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoints import BONUS, FULL, GATED, PROMPTS, TARGET
from command import spec_convert


def mode(folder: Path, *more: str) -> dict[str, object]:
    outcome = spec_convert("smoke", folder, "--target", TARGET, "--prompts", PROMPTS, "--max-new-tokens", "16", "--format", "json", *more)
    result = outcome.json
    assert (outcome.status, result["verdict"]) == (0, "pass"), result["reasons"]
    return {key: result["modes"][-1][key] for key in ("acceptance_length", "outcomes", "exact")}


def test_rank_files_are_the_same_draft_and_need_divisible_heads(tmp_path: Path) -> None:
    assert spec_convert("normalize", BONUS, "--tp", "2", "--out", tmp_path / "ranks").status == 0
    assert (tmp_path / "ranks" / "ranks" / "rank-00001-of-00002.safetensors").is_file()
    same = spec_convert("diff", BONUS, tmp_path / "ranks", "--format", "json")
    assert (same.status, same.json["same"]) == (0, True)
    refused = spec_convert("normalize", BONUS, "--tp", "3", "--out", tmp_path / "three")
    assert (refused.status, (tmp_path / "three").exists()) == (1, False)
    assert "DSP350" in refused.stderr


def test_several_degrees_are_checked_and_not_split(tmp_path: Path) -> None:
    assert spec_convert("normalize", BONUS, "--tp", "2", "--tp", "4", "--out", tmp_path / "out").status == 0
    assert not (tmp_path / "out" / "ranks").exists()


@pytest.mark.engine
def test_the_engine_runs_rank_files_on_one_and_two_ranks(tmp_path: Path) -> None:
    assert spec_convert("normalize", GATED, "--tp", "2", "--out", tmp_path / "ranks").status == 0
    alone = mode(GATED)
    assert mode(tmp_path / "ranks") == alone
    assert mode(tmp_path / "ranks", "--tp", "2") == alone


@pytest.mark.engine
@pytest.mark.parametrize("draft", [BONUS, GATED], ids=lambda path: path.name)
def test_dense_rewrite_drafts_the_same_tokens(draft: Path, tmp_path: Path) -> None:
    outcome = spec_convert("normalize", draft, "--layout", "sglang-dense", "--target", TARGET, "--rank-pad", "4", "--out", tmp_path / "dense", "--format", "json")
    assert outcome.status == 0
    made = {tensor["role"]: tensor["made"] for tensor in outcome.json["predicate"]["tensors"]}
    assert (made["markov_head.markov_w1.weight"], made["markov_head.markov_w2.weight"], made["fc.weight"]) == ("computed", "computed", "copied")
    assert json.loads((tmp_path / "dense" / "config.json").read_text())["markov_rank"] == 36
    assert mode(tmp_path / "dense") == mode(draft)


def test_reduced_vocabulary_keeps_what_must_stay_and_reports_coverage(tmp_path: Path) -> None:
    corpus = Path(PROMPTS)
    outcome = spec_convert("normalize", FULL, "--target", TARGET, "--reduce-vocab", "512", "--corpus", corpus, "--out", tmp_path / "out", "--format", "json")
    assert outcome.status == 0, outcome.stderr
    assert any("cover" in note for note in outcome.json["predicate"]["notes"])
    report = spec_convert("inspect", tmp_path / "out", "--target", TARGET, "--format", "json").json
    assert (report["spec"]["draft_vocab_size"], report["spec"]["d2t"]) == (512, "offset")
    assert not any(finding["code"] == "DSP111" for finding in report["findings"])


def test_reduced_vocabulary_needs_its_layout_target_and_corpus(tmp_path: Path) -> None:
    assert spec_convert("normalize", FULL, "--layout", "sglang", "--reduce-vocab", "512", "--out", tmp_path / "a").status == 2
    assert spec_convert("normalize", FULL, "--reduce-vocab", "512", "--out", tmp_path / "b").status == 2
    assert spec_convert("normalize", FULL, "--corpus", PROMPTS, "--out", tmp_path / "c").status == 2
    assert list(tmp_path.iterdir()) == []


def test_different_drafts_differ() -> None:
    outcome = spec_convert("diff", FULL, BONUS)
    assert outcome.status == 1
    assert outcome.stdout.splitlines()[-1].startswith("different drafts")


def test_doctor_says_why_nothing_would_be_served_without_sglang() -> None:
    outcome = spec_convert("doctor", "--format", "json")
    assert (outcome.status, bool(outcome.json["problems"])) == (1, True)
    assert "sglang" in outcome.json["versions"]
