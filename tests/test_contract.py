"""The fields and exit statuses that scripts rely on, over the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from checkpoints import BONUS, DRAFTS, FULL, GATED, PROMPTS, TARGET, TRAINED, copy, edit_config, shard
from command import spec_convert

SCHEMAS = Path(__file__).parent.parent / "schemas"


def valid(document: object, name: str) -> None:
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text())).validate(document)


@pytest.mark.parametrize(
    ("draft", "anchor", "gamma", "slots", "vocab", "kind"),
    [
        (FULL, "sampled", 6, 6, 1024, "vanilla"),
        (BONUS, "bonus", 6, 7, 512, "vanilla"),
        (GATED, "sampled", 6, 6, 512, "gated"),
        (TRAINED / "tiny-sliding-causal", "sampled", 6, 6, 1024, "vanilla"),
        (TRAINED / "tiny-sliding-noncausal", "bonus", 6, 7, 512, "rnn"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_report_fields(draft: Path, anchor: str, gamma: int, slots: int, vocab: int, kind: str) -> None:
    outcome = spec_convert("inspect", draft, "--target", TARGET, "--format", "json")
    report = outcome.json
    valid(report, "report")
    spec = report["spec"]
    assert (outcome.status, outcome.stderr) == (0, "")
    assert (report["schema_version"], report["format"]["name"]) == ("1", "speculators")
    assert (spec["anchor"], spec["gamma"], spec["query_slots"]) == (anchor, gamma, slots)
    assert (spec["target_layer_ids"], spec["target_vocab_size"], spec["draft_vocab_size"]) == ([0, 1, 2], 1024, vocab)
    assert (spec["markov"], spec["mask_token_id"]) == ({"kind": kind, "rank": 32}, 2)
    assert {finding["severity"] for finding in report["findings"]} <= {"info"}
    for finding in report["findings"]:
        assert set(finding) >= {"code", "severity", "message", "subject", "measured", "expected", "hint"}
    assert {(item["engine"], item["version"]) for item in report["engines"]} >= {("SGLang", "0.5.23"), ("SGLang", "0.5.23 + plugin"), ("vLLM", "0.33.0"), ("speculators", "0.9.0")}
    for item in report["engines"]:
        assert item["verdict"] in ("loads", "needs-normalize", "unsupported")
        assert item["reasons"] or item["verdict"] == "loads"
        assert bool(item["launch"]) is (item["verdict"] != "unsupported")


def test_geometry_in_words() -> None:
    assert "gamma 6: draft forward of 7 slots, slot 0 not sampled" in spec_convert("inspect", BONUS).stdout


def test_text_report_has_no_trailing_space_and_whole_commands() -> None:
    lines = spec_convert("inspect", FULL).stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert any(line.strip().startswith("$ python -m sglang.launch_server") and line.endswith(str(FULL)) for line in lines)


def test_sizes() -> None:
    size = spec_convert("inspect", GATED, "--tp", "2", "--format", "json").json["size"]
    assert size["tensor_bytes"] == 1131650
    halved = 2 * (98304 * 3 + 32768 * 2 + 16384 * 2) + 131072 + 32768
    assert size["per_rank_bytes"] == {"1": 1131650, "2": 1131650 - halved // 2}
    once = 1131650 - 4096 - 1024 - 65536 - 32768
    assert size["read_per_block_bytes"] == once + 6 * (32768 + 64)


def test_exit_status_follows_severity(tmp_path: Path) -> None:
    broken = edit_config(copy(FULL, tmp_path / "a"), lambda config: config.update(mask_token_id=5000))
    odd = edit_config(copy(FULL, tmp_path / "b"), lambda config: config["transformer_layer_config"].pop("rope_parameters"))
    assert spec_convert("inspect", FULL).status == 0
    assert spec_convert("inspect", broken).status == 1
    severities = {finding["severity"] for finding in spec_convert("inspect", odd, "--format", "json").json["findings"]}
    assert severities == {"warning", "info"}
    assert spec_convert("inspect", odd).status == 0
    assert spec_convert("inspect", odd, "--fail-on", "warning").status == 1


def test_sharded_checkpoint_reads_like_the_single_file(tmp_path: Path) -> None:
    whole = spec_convert("inspect", BONUS, "--target", TARGET, "--format", "json")
    parts = spec_convert("inspect", shard(copy(BONUS, tmp_path / "draft")), "--target", TARGET, "--format", "json")
    places = {"evidence", "tensors"}
    assert parts.status == 0
    assert {key: value for key, value in parts.json["spec"].items() if key not in places} == {key: value for key, value in whole.json["spec"].items() if key not in places}
    assert [row["role"] for row in parts.json["tensors"]] == [row["role"] for row in whole.json["tensors"]]


def test_heads_are_checked_for_each_degree() -> None:
    findings = spec_convert("inspect", FULL, "--tp", "2", "--tp", "3", "--format", "json").json["findings"]
    assert [(finding["severity"], finding["measured"]) for finding in findings if "3" in finding["message"] + finding["subject"]] != []
    assert not any(finding["severity"] == "error" for finding in spec_convert("inspect", FULL, "--tp", "2", "--tp", "4", "--format", "json").json["findings"])


def test_errors_are_documents_too(tmp_path: Path) -> None:
    outcome = spec_convert("inspect", tmp_path / "absent", "--format", "json")
    assert outcome.status == 3
    assert outcome.json["exit_status"] == 3
    assert set(outcome.json["error"]) == {"code", "message", "where", "measured", "expected", "hint"}
    assert "absent" in outcome.stderr


def test_usage_errors_exit_2() -> None:
    assert spec_convert("inspect").status == 2
    assert spec_convert("inspect", FULL, "--format", "yaml").status == 2
    assert spec_convert("inspect", FULL, "--set", "block=3").status == 2
    assert spec_convert("inspect", FULL, "--set", "mask_token_id=-3").status == 2
    assert spec_convert("normalize", FULL).status == 2
    assert spec_convert("normalize", FULL, "--out", "x", "--layout", "nope").status == 2


@pytest.mark.engine
def test_smoke_fields(tmp_path: Path) -> None:
    out = tmp_path / "smoke.json"
    outcome = spec_convert("smoke", GATED, "--target", TARGET, "--prompts", PROMPTS, "--max-new-tokens", "16", "--format", "json", "--out", out)
    result = outcome.json
    valid(result, "smoke")
    assert (outcome.status, result["verdict"], json.loads(out.read_text())) == (0, "pass", result)
    mode = result["modes"][0]
    assert (mode["mode"], mode["tp"], mode["exact"], mode["total"]) == ("eager", 1, 20, 20)
    assert mode["acceptance_length"] == pytest.approx((mode["accepted_tokens"] + mode["verify_steps"]) / mode["verify_steps"])
    assert len(mode["acceptance_by_position"]) == 6
    assert set(result["checkpoint"]["files"]) == {"config.json", "model.safetensors"}


@pytest.mark.engine
def test_smoke_without_reference_is_a_self_test() -> None:
    outcome = spec_convert("smoke", "--format", "json")
    assert (outcome.status, outcome.json["verdict"]) == (0, "pass")


@pytest.mark.engine
def test_smoke_uses_the_named_verifier(tmp_path: Path) -> None:
    draft = edit_config(copy(FULL, tmp_path / "draft"), lambda config: config["speculators_config"]["verifier"].update(name_or_path="the-target"))
    absent = spec_convert("smoke", draft, "--max-new-tokens", "8", "--format", "json")
    assert (absent.status, absent.json["verdict"]) == (4, "not-run")
    assert "the-target" in absent.json["reasons"][0]
    copy(TARGET, tmp_path / "the-target")
    beside = spec_convert("smoke", draft, "--max-new-tokens", "8", "--format", "json")
    assert (beside.status, beside.json["target"]["reference"]) == (0, str(tmp_path / "the-target"))


@pytest.mark.engine
def test_smoke_fails_under_the_floor_and_off_the_expectation() -> None:
    short = ("smoke", FULL, "--target", TARGET, "--prompts", PROMPTS, "--max-new-tokens", "16", "--format", "json")
    low = spec_convert(*short, "--floor", "4")
    assert (low.status, low.json["verdict"]) == (1, "fail")
    assert any("floor" in reason for reason in low.json["reasons"])
    assert spec_convert(*short, "--expect", "3.9").status == 1


def test_drafts_are_all_here() -> None:
    assert all((draft / "config.json").is_file() for draft in DRAFTS)
