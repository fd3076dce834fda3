"""The command: what it takes, its exit status, and that it answers without torch when it only analyzes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench_rows import TOKENS, plan_of, row
from command import spec_convert
from speculators_convert.bench import store
from speculators_convert.bench_result import ServerRun
from speculators_convert.workloads.base import Request, Workload

DRAFT = Path(__file__).parents[2] / "fixtures/trained/tiny-bonus-reduced-vanilla"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of made-up rows."""
    out, plan = tmp_path / "run", plan_of(repeats=3)
    store.open_folder(out, plan, Workload("w", (Request("a", "", (1, 2)),)))
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
    assert (tmp_path / "picture.png").stat().st_size > 0


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
