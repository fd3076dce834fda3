"""Recorded runs: the summary of each comes out of its raw rows again, bit for bit, and the page says what the newest run says."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.bench.recorded_runs import RECORDED, summary, unpack

from speculators_convert import api

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/evidence/README.md"
DRAFTS = ("drafted", "dense", "full")


@pytest.fixture(scope="module")
def bench_table() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        return importlib.import_module("bench_table")


def test_both_pairs_are_recorded() -> None:
    assert {path.name for path in RECORDED} == {"bench-trained.tar.gz", "bench-synthetic.tar.gz"}


@pytest.mark.parametrize("archive", RECORDED, ids=[f"{path.parent.name}/{path.name}" for path in RECORDED])
def test_a_recorded_run_is_computed_again(archive: Path, tmp_path: Path) -> None:
    report = api.bench_analyze(unpack(archive, tmp_path))
    assert report.plan.repeats >= 3
    assert all(arm.requests == report.plan.repeats * report.plan.workload.requests for result in report.results for arm in result.arms)


def said(*cells: str) -> list[str]:
    """The further cells of the one row of the page that begins with these."""
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {' | '.join(cells)} | ")]
    return [cell.strip() for cell in row.strip("|").split("|")][len(cells) :]


@pytest.mark.parametrize("archive", RECORDED, ids=[path.name for path in RECORDED])
def test_the_page_says_what_the_rows_say(archive: Path, tmp_path: Path) -> None:
    """Each repeat by itself, from the rows as they lie in the archive."""
    folder, pair = unpack(archive, tmp_path), archive.name.split("-")[1].removesuffix(".tar.gz")
    names = {"plain": "target alone", "drafted": "native", "dense": "dense", "full": "full"}
    asked = json.loads((folder / "plan.json").read_text())["workload"]
    assert said(pair)[:4] == [str(asked["requests"]), str(len(asked["skipped"])), "128", "3"]
    for concurrency in (1, 8):
        for arm, name in names.items():
            speeds, steps = [], []
            for server in sorted(folder.glob(f"servers/*-{arm}")):
                rows = [row for row in map(json.loads, (server / "rows.jsonl").read_text().splitlines()) if row["concurrency"] == concurrency]
                span = max(row["end_ns"] for row in rows) - min(row["begin_ns"] for row in rows)
                speeds.append(sum(row["output_tokens"] for row in rows) * 1e9 / span)
                taken = sum(row["verify_steps"] if arm != "plain" else row["output_tokens"] - row["first_tokens"] for row in rows)
                steps.append(sum(row["last_ns"] - row["first_ns"] for row in rows) / taken / 1e6)
            speed, apart, step, _ = said(f"{pair}, {concurrency}", name)
            assert speed == f"{sorted(speeds)[1]:,.0f} ({', '.join(f'{value:,.0f}' for value in speeds)})"
            assert apart == f"{max(speeds) / min(speeds):.2f}"
            assert re.findall(r"\((.*)\)", step) == [", ".join(f"{value:.2f}" for value in steps)]


def test_a_number_that_was_changed_makes_the_page_stale(bench_table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_table, "PAGE", Path(shutil.copy(PAGE, tmp_path)))
    monkeypatch.setattr("sys.argv", ["bench_table.py", "--check"])
    assert bench_table.main() == 0
    spoilt = PAGE.read_text().replace("1.262 (1.183 to 1.386) better", "1.263 (1.183 to 1.386) better")
    assert spoilt != PAGE.read_text()
    bench_table.PAGE.write_text(spoilt)
    assert bench_table.main() == 1
    monkeypatch.setattr("sys.argv", ["bench_table.py"])
    assert bench_table.main() == 0
    assert bench_table.PAGE.read_text() == PAGE.read_text()


@pytest.mark.parametrize("spoil", [lambda text: text.replace("<!-- BENCH begin", "<!-- begin"), lambda text: text.replace("## h200-x2-2026-11-30\n", "## other\n")])
def test_tables_under_another_run_are_refused(bench_table: ModuleType, spoil: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_table, "PAGE", tmp_path / "README.md")
    bench_table.PAGE.write_text(spoil(PAGE.read_text()))
    with pytest.raises(SystemExit, match="belong into the section"):
        bench_table.page()


def test_the_newest_run_is_the_one_with_the_latest_date(bench_table: ModuleType, tmp_path: Path) -> None:
    for name, date in (("z-old", "2026-01-01"), ("a-new", "2026-02-01"), ("a-newest-without-bench", "2026-03-01")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"date": date}))
        if "without" not in name:
            for pair in ("synthetic", "trained"):
                (tmp_path / name / f"bench-{pair}.tar.gz").touch()
    assert [str(path.relative_to(tmp_path)) for path in bench_table.newest(tmp_path)] == ["a-new/bench-trained.tar.gz", "a-new/bench-synthetic.tar.gz"]


def verdicts(metric: str, verdict: str) -> set[tuple[str, int, str]]:
    """Pair, concurrency and draft wherever the summary says this against the target alone."""
    return {
        (pair, result.concurrency, change.arm)
        for pair in ("trained", "synthetic")
        for result in summary(pair).results
        for change in result.changes
        if (change.metric, change.verdict, change.against) == (metric, verdict, "plain")
    }


def test_the_sentences_about_the_target_alone_hold() -> None:
    """Those of the page, under the tables."""
    trained, one = {("trained", many, arm) for many in (1, 8) for arm in DRAFTS}, {(pair, 1, arm) for pair in ("trained", "synthetic") for arm in DRAFTS}
    everything = trained | one | {("synthetic", 8, arm) for arm in DRAFTS}
    faster = {*(("trained", 1, arm) for arm in DRAFTS), ("synthetic", 1, "drafted"), ("trained", 8, "dense"), ("trained", 8, "full")}
    assert (verdicts("throughput", "better"), verdicts("throughput", "worse")) == (faster, set())
    assert (verdicts("end to end p50", "better"), verdicts("end to end p50", "worse")) == (everything - {("synthetic", 1, "dense")}, set())
    assert (verdicts("end to end p99", "better"), verdicts("end to end p99", "worse")) == ({("synthetic", 1, "drafted")}, trained)
    assert (verdicts("time to first token p50", "better"), verdicts("time to first token p50", "worse")) == (set(), trained | one | {("synthetic", 8, "full")})


def test_the_sentences_about_which_draft_is_fastest_hold() -> None:
    """No draft is ahead of native in all repeats; dense and full are of each other, twice."""
    ahead = set()
    for pair in ("trained", "synthetic"):
        for result in summary(pair).results:
            speeds = {arm.arm: arm.throughput for arm in result.arms}
            ahead |= {
                (pair, result.concurrency, one, other)
                for one in DRAFTS
                for other in DRAFTS
                if one != other and all(left > right for left, right in zip(speeds[one], speeds[other], strict=True))
            }
    assert ahead == {("trained", 8, "dense", "full"), ("synthetic", 8, "full", "dense")}
