"""Whole runs of the reference engine: real processes, real rows; what a changed file does; where a stopped run goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bench.drawn import check_page, check_picture

from speculators_convert import api
from speculators_convert.bench import store
from speculators_convert.errors import RefusedError, SmokeError, SourceError, UsageError
from speculators_convert.model import canonical_json, pretty_json, sha256_hex
from speculators_convert.report.bench_html import render_bench
from speculators_convert.report.bench_png import write_png
from speculators_convert.report.bench_text import bench_lines
from speculators_convert.results.bench import BenchOptions, BenchReport

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
DRAFT, TARGET = TRAINED / "tiny-bonus-reduced-vanilla", TRAINED / "tiny-target"
TOKENS = 24
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("requests") / "two.jsonl"
    file.write_text("\n".join((TRAINED / "prompts.jsonl").read_text().splitlines()[:2]))
    return file


def options(requests: Path, **changes: object) -> BenchOptions:
    return BenchOptions.model_validate(
        {"target": str(TARGET), "engine": "reference", "device": "cpu", "workload": str(requests), "output_tokens": TOKENS, "repeats": 2, "warm_up": 1, **changes}
    )


@pytest.fixture(scope="module")
def recorded(requests: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped by its budget after the first group, and called again."""
    out = tmp_path_factory.mktemp("run") / "out"
    with pytest.raises(SmokeError, match="the budget ended first") as caught:
        api.bench(str(DRAFT), out, options=options(requests, side_by_side=2, budget_seconds=1))
    assert "2 of 4 servers" in str(caught.value)
    before = {path.name: (path / "rows.jsonl").read_bytes() for path in (out / "servers").glob("0*")}
    assert sorted(before) == ["000-plain", "001-drafted"]
    with pytest.raises(SourceError, match="manifest"):
        api.bench_analyze(out)
    api.bench(str(DRAFT), out, options=options(requests, side_by_side=2))
    assert {name: (out / "servers" / name / "rows.jsonl").read_bytes() for name in before} == before
    return out


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


def test_a_run_leaves_exact_rows_in_the_order_of_the_plan(recorded: Path) -> None:
    assert [path.name for path in sorted((recorded / "servers").iterdir())] == ["000-plain", "001-drafted", "002-drafted", "003-plain"]
    for folder in (recorded / "servers").iterdir():
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
        assert [row["output_tokens"] for row in rows] == [TOKENS, TOKENS]
        assert all((row["verify_steps"] > 0) == ("drafted" in folder.name) for row in rows)
        assert all(row["accepted"] + row["verify_steps"] + 1 >= TOKENS for row in rows if row["verify_steps"])


def test_outputs_are_those_of_the_target_in_every_repeat(recorded: Path) -> None:
    """The recorded continuations of the prompt file, too."""
    report = api.bench_analyze(recorded)
    assert [(arm.outputs_equal, arm.outputs_plain) for arm in report.results[0].arms] == [(2, 2), (2, 2)]
    expected = [json.loads(line)["greedy_output_ids_float32"][:TOKENS] for line in (TRAINED / "prompts.jsonl").read_text().splitlines()[:2]]
    digests = [json.loads(line)["output_sha256"] for line in (recorded / "servers/001-drafted/rows.jsonl").read_text().splitlines()]
    assert digests == [sha256_hex(canonical_json(tokens)) for tokens in expected]


def test_the_summary_is_computed_again_bit_for_bit(recorded: Path) -> None:
    stored = (recorded / "summary.json").read_bytes()
    assert pretty_json(api.bench_analyze(recorded).model_dump(mode="json")).encode() == stored
    assert store.seal(recorded, api.bench_analyze(recorded).plan).model_dump(mode="json") == json.loads(stored)


def _first_row(run: Path, change: Callable[[dict[str, int]], None]) -> None:
    file = run / "servers/001-drafted/rows.jsonl"
    lines = file.read_text().splitlines()
    row = json.loads(lines[0])
    change(row)
    file.write_text("\n".join([canonical_json(row).decode(), *lines[1:]]) + "\n")


def _slower(row: dict[str, int]) -> None:
    row["end_ns"] += 1


@pytest.mark.parametrize("name", ["plan.json", "workload.jsonl", "summary.json", "servers/001-drafted/rows.jsonl", "servers/000-plain/log", "servers/002-drafted/server.json"])
def test_a_changed_file_is_refused(run: Path, name: str) -> None:
    api.bench_analyze(run)
    file = run / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(RefusedError):
        api.bench_analyze(run)


def test_one_nanosecond_is_refused_and_so_is_its_repaired_record(run: Path) -> None:
    _first_row(run, _slower)
    with pytest.raises(RefusedError, match="not the one that was recorded"):
        api.bench_analyze(run)
    record = run / "servers/001-drafted/server.json"
    value = json.loads(record.read_text())
    value["rows_sha256"] = sha256_hex((run / "servers/001-drafted/rows.jsonl").read_bytes())
    record.write_text(pretty_json(value))
    with pytest.raises(RefusedError, match="digests are not the manifest's"):
        api.bench_analyze(run)


def test_a_better_summary_is_refused_even_with_its_digest(run: Path) -> None:
    summary, manifest = json.loads((run / "summary.json").read_text()), json.loads((run / "manifest.json").read_text())
    summary["results"][0]["arms"][1]["throughput_median"] *= 1.5
    (run / "summary.json").write_text(pretty_json(summary))
    manifest["summary_sha256"] = sha256_hex((run / "summary.json").read_bytes())
    (run / "manifest.json").write_text(pretty_json(manifest))
    with pytest.raises(RefusedError, match="not what the raw rows give"):
        api.bench_analyze(run)


def test_a_missing_server_is_refused(run: Path) -> None:
    shutil.rmtree(run / "servers/003-plain")
    with pytest.raises(RefusedError, match="servers are missing"):
        api.bench_analyze(run)


def test_a_folder_takes_one_plan_only(run: Path, requests: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="output_tokens differs"):
        api.bench(str(DRAFT), run, options=options(requests, output_tokens=TOKENS + 1, side_by_side=2))
    with pytest.raises(UsageError, match=r"target\.digest differs"):
        api.bench(str(DRAFT), run, options=options(requests, side_by_side=2, target=str(_touched(tmp_path))))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(UsageError, match="holds no run"):
        api.bench(str(DRAFT), tmp_path / "full", options=options(requests))


def _touched(folder: Path) -> Path:
    """The target with one more space in its config."""
    copy = Path(shutil.copytree(TARGET, folder / "target"))
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    return copy


def test_a_process_that_fails_is_named_by_the_line_that_says_why(requests: Path, tmp_path: Path) -> None:
    """A target whose config the engine cannot load: the first server fails, with the end of its log."""
    target = Path(shutil.copytree(TARGET, tmp_path / "target"))
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(SmokeError, match="ended without an answer") as caught:
        api.bench(str(DRAFT), tmp_path / "out", options=options(requests, target=str(target)))
    assert "num_hidden_layers" in str(caught.value)
    assert caught.value.hint.endswith("000-plain.part/log")
    assert list((tmp_path / "out/servers").glob("0*")) == []


def test_the_reference_engine_says_what_it_has_not(requests: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one request at a time"):
        api.bench(str(DRAFT), tmp_path / "out", options=options(requests, concurrency=(1, 2)))
    with pytest.raises(UsageError, match="no such engine"):
        api.bench(str(DRAFT), tmp_path / "out", options=options(requests, engine="vllm"))
    with pytest.raises(UsageError, match="a name of its own"):
        api.bench(str(DRAFT), tmp_path / "out", options=options(requests, also=(("plain", str(DRAFT)),)))


def test_text_page_and_picture_show_the_same_run(recorded: Path, tmp_path: Path) -> None:
    report: BenchReport = api.bench_analyze(recorded)
    text, page = "\n".join(bench_lines(report)), render_bench(report)
    drafted = report.results[0].arms[1]
    assert drafted.acceptance is not None
    assert f"acceptance length {drafted.acceptance.length:.3f}" in text
    for shown in (f"{drafted.acceptance.length:.3f}", f"{drafted.end_to_end.p99:.3f}", report.rows_sha256[0], *report.regressions):
        assert shown in page
    check_page(page, report)
    write_png(report, tmp_path / "picture.png")
    check_picture(tmp_path / "picture.png", report)


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_goes_on(requests: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["bench", str(DRAFT), "--target", str(TARGET), "--engine", "reference", "--device", "cpu", "--workload", str(requests), "--output-tokens", str(TOKENS)]
    command = [sys.executable, "-m", "speculators_convert", *words, "--repeats", "2", "--warm-up", "1", "--out", str(out)]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (out / "servers/000-plain").exists() or not list(out.glob("servers/.*.part/log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    first = (out / "servers/000-plain/rows.jsonl").read_bytes()
    while workers := [entry for entry in Path("/proc").glob("[0-9]*") if _session(entry) == process.pid]:
        assert time.monotonic() < deadline, workers
        time.sleep(0.1)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "servers/000-plain/rows.jsonl").read_bytes() == first
    api.bench_analyze(out)


def _session(entry: Path) -> int | None:
    """Session of a living process."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])
