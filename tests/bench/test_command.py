"""The command: what it takes, its exit status, and that it answers without torch when it only analyzes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bench.drawn import check_page, check_picture

from bench_rows import TOKENS, plan_of, row
from command import spec_convert
from speculators_convert import api
from speculators_convert.bench import store
from speculators_convert.model import sha256_hex
from speculators_convert.results.bench import ServerRun
from speculators_convert.workloads.base import Request, Workload

DRAFT = Path(__file__).parents[2] / "fixtures/trained/tiny-bonus-reduced-vanilla"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of made-up rows."""
    workload = Workload("w", (Request("a", "", (1, 2)),))
    out, plan = tmp_path / "run", plan_of(repeats=3, digest=workload.digest)
    store.open_folder(out, plan, workload)
    for step in plan.steps:
        folder = store.part(out, step)
        (folder / "log").write_text("a log\n")
        record = ServerRun(step=step, command=("serve",), variables={}, group=(step.index,), start_seconds=1, asked_seconds=1, rows_sha256="", log_sha256="")
        counted = {"verify_steps": 4, "accepted": 6, "drafted": 12, "end_ns": 40} if step.arm == "drafted" else {}
        store.keep(out, folder, record, [row(**counted)])
    store.seal(out, plan)
    return out


def test_analyze_prints_losses_and_writes_page_and_picture(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = spec_convert("bench", "analyze", run, "--html", tmp_path / "page.html", "--png", tmp_path / "picture.png")
    assert done.status == 0, done.stderr
    assert "WORSE  concurrency 1, drafted: throughput is 0.750 times that of the target alone (0.750 to 0.750)" in done.stdout
    assert "measures are worse than the target alone" in (tmp_path / "page.html").read_text()
    check_page((tmp_path / "page.html").read_text(), api.bench_analyze(run))
    check_picture(tmp_path / "picture.png", api.bench_analyze(run))


def test_analyze_as_json_is_the_stored_summary(run: Path) -> None:
    assert spec_convert("bench", "analyze", run, "--format", "json").stdout == (run / "summary.json").read_text()


def test_a_changed_row_is_a_finding_and_a_missing_folder_cannot_be_read(run: Path, tmp_path: Path) -> None:
    rows = run / "servers/002-drafted/rows.jsonl"
    rows.write_text(rows.read_text().replace('"end_ns":40', '"end_ns":39'))
    done = spec_convert("bench", "analyze", run)
    assert (done.status, done.stdout) == (1, "")
    assert "not the one that was recorded" in done.stderr
    assert spec_convert("bench", "analyze", tmp_path / "absent").status == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("analyze",), "bench analyze DIR"),
        ((DRAFT, DRAFT), "bench REF --out DIR"),
        ((DRAFT,), "a run needs a folder"),
        ((DRAFT, "--out", "x", "--also", "dense"), "NAME=REF"),
    ],
)
def test_wrong_calls_say_what_is_right(words: tuple[object, ...], message: str) -> None:
    done = spec_convert("bench", *words)
    assert done.status == 2
    assert message in done.stderr


def test_analyze_needs_no_torch(run: Path) -> None:
    call = f"try: main(['bench', 'analyze', {str(run)!r}])\nexcept SystemExit: pass"
    code = f"import sys; from speculators_convert.cli import main\n{call}\nprint(sorted({{'torch', 'transformers', 'sglang'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert f"requests of {TOKENS} output tokens" in done.stdout


def test_requests_of_another_run_are_refused(run: Path) -> None:
    """In place of the run's own, and with a manifest that names them."""
    (run / "workload.jsonl").write_text('{"x": 1}\n')
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["workload_sha256"] = sha256_hex((run / "workload.jsonl").read_bytes())
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert spec_convert("bench", "analyze", str(run)).status == 1


def test_a_manifest_that_names_fewer_servers_is_refused(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["servers"] = manifest["servers"][:2]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert spec_convert("bench", "analyze", str(run)).status == 1


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_a_page_does_not_replace_the_runs_files(run: Path, option: str) -> None:
    before = (run / "summary.json").read_bytes()
    assert spec_convert("bench", "analyze", str(run), option, str(run / "summary.json")).status == 2
    assert (run / "summary.json").read_bytes() == before


def test_a_start_that_was_cut_short_starts_again(tmp_path: Path) -> None:
    workload = Workload("w", (Request("a", "", (1, 2)),))
    for name in ("workload.jsonl", ".plan.json.tmp"):
        (tmp_path / name).write_text("{")
    store.open_folder(tmp_path, plan_of(digest=workload.digest), workload)
    assert (tmp_path / "workload.jsonl").read_bytes() == b"".join(workload.lines())
