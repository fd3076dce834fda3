"""`bench` over stock servers on the CPU: the command itself, three arms, two concurrencies, and the summary computed again elsewhere."""

import json
import subprocess
from pathlib import Path

import pytest
from sglang_harness.environment import PYTHON, ROOT, TRAINED, Site

from speculators_convert import api
from speculators_convert.model import pretty_json
from workload_copies import write_mmspec

TOKENS, REQUESTS = 16, 3
DRAFT, TARGET = TRAINED / "tiny-bonus-reduced-vanilla", TRAINED / "tiny-target"


@pytest.fixture(scope="module")
def run(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target alone, the draft through the plugin, and its rewrite over the whole vocabulary without the plugin; each server once."""
    folder = tmp_path_factory.mktemp("bench")
    api.normalize(str(DRAFT), folder / "dense", layout="sglang-dense", target=str(TARGET))
    (folder / "requests.jsonl").write_text("\n".join((TRAINED / "prompts.jsonl").read_text().splitlines()[:REQUESTS]))
    command = [
        str(PYTHON), "-m", "speculators_convert", "bench", str(DRAFT), "--target", str(TARGET), "--also", f"dense={folder / 'dense'}", "--stock", "dense", "--workload",
        str(folder / "requests.jsonl"), "--output-tokens", str(TOKENS), "--concurrency", "1", "--concurrency", "2", "--repeats", "1", "--warm-up", "1", "--side-by-side", "2",
        "--out", str(folder / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, env=site.environ(), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "concurrency 2" in done.stdout
    return folder / "out"


def rows(run: Path, server: str) -> list[dict]:
    return [json.loads(line) for line in (run / "servers" / server / "rows.jsonl").read_text().splitlines()]


def test_each_request_has_exactly_its_tokens_and_raw_counters(run: Path) -> None:
    for server in ("000-plain", "001-drafted", "002-dense"):
        found = rows(run, server)
        assert [row["concurrency"] for row in found] == [1] * REQUESTS + [2] * REQUESTS
        for row in found:
            assert row["output_tokens"] == TOKENS
            assert row["begin_ns"] < row["first_ns"] < row["last_ns"] <= row["end_ns"]
            if server == "000-plain":
                assert row["verify_steps"] == row["drafted"] == 0
                assert TOKENS // 2 < row["events"] <= TOKENS  # on a busy machine two steps may come as one event
            else:
                assert row["drafted"] == 6 * row["verify_steps"] > 0
                assert sum(row["histogram"]) == row["verify_steps"]
                assert sum(count * times for count, times in enumerate(row["histogram"])) == row["accepted"]


def test_drafted_outputs_are_the_recorded_ones(run: Path) -> None:
    report = api.bench_analyze(run)
    for result in report.results:
        assert [(arm.arm, arm.outputs_plain) for arm in result.arms] == [("plain", REQUESTS), ("drafted", REQUESTS), ("dense", REQUESTS)]
    native, dense = (arm.acceptance for arm in report.results[0].arms[1:])
    assert native == dense


def test_the_summary_is_computed_again_in_another_python(run: Path) -> None:
    assert pretty_json(api.bench_analyze(run).model_dump(mode="json")).encode() == (run / "summary.json").read_bytes()


def test_each_server_says_how_it_was_started(run: Path) -> None:
    records = {name: json.loads((run / "servers" / name / "server.json").read_text()) for name in ("000-plain", "001-drafted", "002-dense")}
    assert "--speculative-draft-model-path" not in records["000-plain"]["command"]
    assert all("--sleep-on-idle" in record["command"] for record in records.values())
    assert records["002-dense"]["variables"]["SGLANG_PLUGINS"] == "cpu_stand_in"
    assert "SGLANG_PLUGINS" not in records["001-drafted"]["variables"]
    plan = json.loads((run / "plan.json").read_text())
    assert plan["environment"]["sglang"] == "0.5.23"
    assert all((run / "servers" / name / "log").stat().st_size > 0 for name in records)


@pytest.fixture(scope="module")
def seen(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of MMSpec's form, one sample of each topic, asked of a target that sees images."""
    folder = tmp_path_factory.mktemp("seen")
    write_mmspec(folder / "copy", per_topic=1)
    pair = ROOT / "fixtures/multimodal"
    command = [
        str(PYTHON), "-m", "speculators_convert", "bench", str(pair / "vl-draft"), "--target", str(pair / "vl-target"), "--workload", f"mmspec:{folder / 'copy'}",
        "--output-tokens", "8", "--repeats", "1", "--warm-up", "1", "--out", str(folder / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, env=site.environ(), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "out"


def test_images_reach_the_server(seen: Path) -> None:
    """One placeholder in the request is as many tokens at the server as the image has merged patches: 64 pixels over 2 patches of 16, squared."""
    sent = [json.loads(line) for line in (seen / "workload.jsonl").read_text().splitlines()]
    assert len({item["image_sha256"] for item in sent}) == 6
    for server in ("000-plain", "001-drafted"):
        assert [row["input_tokens"] for row in rows(seen, server)] == [len(item["input_ids"]) - 1 + 4 for item in sent]
    assert [arm.outputs_plain for arm in api.bench_analyze(seen).results[0].arms] == [6, 6]
