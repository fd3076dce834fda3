"""Detection as a user meets it: `inspect` on whole folders. Evidence is shown, conflicts are findings, good files have no errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drafts import GOOD
from speculators_convert import api
from speculators_convert.findings import Report
from speculators_convert.report.text import render_plain

FOLDERS = sorted(path.name for path in GOOD.iterdir() if path.is_dir())
IDS = [1, 9, 19, 29, 36]


def inspected(name: str) -> Report:
    return api.inspect(str(GOOD / name))


def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((GOOD / name / "expected.json").read_text()))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_good_file_has_no_errors_and_names_its_format(name: str) -> None:
    report = inspected(name)
    assert report.format.name == expected(name)["format"]
    assert [(finding.code, finding.message) for finding in report.findings if finding.severity == "error"] == []


@pytest.mark.parametrize("name", [name for name in FOLDERS if expected(name)["disputed"]])
def test_a_second_possible_reading_is_a_finding_that_names_the_flag(name: str) -> None:
    found = {finding.subject: finding for finding in inspected(name).findings if finding.code == "DSP207"}
    assert sorted(found) == expected(name)["disputed"]
    assert all("--set" in finding.measured for finding in found.values())


@pytest.mark.parametrize(
    ("name", "change", "fact"),
    [
        ("deepspec-sglang-bonus", {"dflash_config.mask_token_id": 4}, "mask_token_id"),
        ("deepspec-sglang-bonus", {"dspark_config.block_size": 9}, "gamma"),
        ("deepspec-sglang-bonus", {"dflash_config.target_layer_ids": [2, 10, 20, 30, 37]}, "target_layer_ids"),
        ("deepspec-sglang-bonus", {"dflash_config.sample_from_anchor": True}, "anchor"),
        ("deepspec-sglang-bonus", {"dspark_config.markov_head_type": "rnn"}, "markov_head_type"),
        ("deepspec-vanilla", {"eagle_aux_hidden_state_layer_ids": IDS}, "target_layer_ids"),
        ("deepspec-vanilla", {"rope_parameters": {"rope_theta": 10000.0}}, "rope_theta"),
        ("deepspec-vanilla", {"markov_rank": 8}, "markov_rank"),
        ("deepspec-vanilla", {"vocab_size": 63}, "vocab_size"),
        ("deepspec-vanilla", {"num_hidden_layers": 5}, "num_hidden_layers"),
        ("deepspec-vanilla", {"enable_confidence_head": False}, "enable_confidence_head"),
        ("deepspec-vanilla", {"confidence_head_with_markov": False}, "confidence_head_with_markov"),
        ("specforge-current", {"dflash_config.markov_rank": 8}, "markov_rank"),
        ("specforge-current", {"mask_token_id": 4}, "mask_token_id"),
        ("modelopt-vanilla", {"sample_from_anchor": False}, "anchor"),
        ("modelopt-vanilla", {"dflash_config.use_swa": True}, "layer_types"),
        ("modelopt-vanilla", {"dflash_config.use_confidence_head": False}, "enable_confidence_head"),
        ("nemotron-bf16", {"dspark_bonus_anchor": False}, "anchor"),
        ("nemotron-bf16", {"dspark_markov_rank": 512}, "markov_rank"),
        ("nemotron-bf16", {"eagle_aux_hidden_state_layer_ids": IDS}, "target_layer_ids"),
        ("nemotron-bf16", {"dflash_config.swa_window_size": 512}, "sliding_window"),
        ("nemotron-bf16", {"dflash_query_causal": False}, "sliding_causal"),
        ("torchspec-dspark", {"hidden_size": 16}, "hidden_size"),
        ("speculators-0.9-anchor-reduced", {"sample_from_anchor": False}, "anchor"),
        ("speculators-0.9-anchor-reduced", {"draft_vocab_size": 32}, "draft_vocab_size"),
        ("bundled-v4", {"dspark_markov_rank": 512}, "markov_rank"),
    ],
)
def test_two_statements_of_one_fact_are_a_finding(name: str, change: dict[str, Any], fact: str, tmp_path: Path) -> None:
    shutil.copytree(GOOD / name, tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    for dotted, value in change.items():
        *parents, key = dotted.split(".")
        table = config
        for parent in parents:
            table = table[parent]
        table[key] = value
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    report = api.inspect(str(tmp_path / "draft"))
    assert report.spec is not None
    assert len({item.says for item in report.spec.evidence if item.fact == fact}) > 1
    before = {finding.code for finding in inspected(name).findings}
    new = [finding for finding in report.findings if finding.code not in before and finding.severity != "info"]
    assert new, fact


@pytest.mark.parametrize("name", ["dflash-z-lab", "dflash-deepspec", "gguf-dflash", "speculators-dflash-0.6", "torchspec-dflash"])
def test_a_draft_without_markov_head_is_recognised_and_reported_as_one(name: str) -> None:
    report = inspected(name)
    assert report.spec is not None
    assert report.spec.markov is None
    assert "no Markov head" in report.geometry


def test_a_gguf_is_reported_with_its_metadata_and_tensor_table() -> None:
    report = inspected("gguf-dspark-reduced")
    rows = {row.name: (row.role, row.dtype, row.shape) for row in report.tensors}
    assert rows["blk.1.ffn_down.weight"] == ("layers.1.mlp.down_proj.weight", "BF16", (8, 12))
    assert rows["d2t"] == ("d2t", "I64", (24,))
    assert report.spec is not None
    assert ("gamma", "7", "draft.gguf#/dflash.block_size minus one: the anchor's slot") in {(item.fact, item.says, item.source) for item in report.spec.evidence}


@pytest.mark.parametrize("name", FOLDERS)
def test_inspect_shows_the_evidence_for_each_conclusion(name: str) -> None:
    report = inspected(name)
    assert report.spec is not None
    text = render_plain(report)
    flat = "".join(text.split())
    for item in report.spec.evidence:
        if item.decides:
            assert "".join(item.source.split())[:20] in flat, item
    for why in report.format.why:
        assert "".join(why.split())[:30] in flat
