"""The bench tables of docs/evidence/README.md, from the newest recorded run that has any: python tools/bench_table.py [--check]

Each docs/evidence/RUN/bench-PAIR.tar.gz is unpacked and proved again (`bench analyze`) before its numbers are written between the marks in the page. The marks stand in
that run's section: move them when a newer run records `bench`.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from marked_page import filled, write_or_check  # tools/marked_page.py, beside this file
from speculators_convert import api
from speculators_convert.bench import analysis, store
from speculators_convert.results.bench import ArmResult, BenchReport, Change, ConcurrencyResult

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs/evidence"
PAGE = EVIDENCE / "README.md"
BEGIN, END = "<!-- BENCH begin: tools/bench_table.py -->\n", "<!-- BENCH end -->\n"
NAMES = {"plain": "target alone", "drafted": "native"}
"""What the page calls an arm, where it is not the arm's own name."""
METRICS = ("throughput", "end to end p50", "end to end p99", "time to first token p50")
PAIRS = ("pair", "requests", "skipped", "output tokens", "repeats", "acceptance length", "outputs that are the target's in each repeat")
ARMS = ("pair, requests at once", "arm", "tokens/s: median (each repeat)", "largest / smallest repeat", "ms per step: all (each repeat)", "end to end p99, ms")
CHANGES = ("pair, requests at once", "arm / against", *METRICS)


class Recorded(NamedTuple):
    """One pair's summary, and the same numbers of each repeat by itself."""

    pair: str
    report: BenchReport
    repeats: tuple[tuple[ConcurrencyResult, ...], ...]


def newest(evidence: Path = EVIDENCE) -> list[Path]:
    """The archives of the newest run that has any, by the date that its manifest says and then by name; the pair with trained weights first."""
    runs = {archive.parent for archive in evidence.glob("*/bench-*.tar.gz")}
    latest = max(runs, key=lambda run: (json.loads((run / "manifest.json").read_text())["date"], run.name))
    return sorted(latest.glob("bench-*.tar.gz"), key=lambda archive: ("trained" not in archive.name, archive.name))


def recorded(archive: Path) -> Recorded:
    """Unpack a run, nothing of it outside a new folder, and compute its summary again."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        (folder,) = Path(scratch).iterdir()
        report = api.bench_analyze(folder)
        rows = {index: server.rows for index, server in store.finished(folder, report.plan).items()}
    single = [report.plan.model_copy(update={"steps": tuple(step for step in report.plan.steps if step.repeat == repeat)}) for repeat in range(report.plan.repeats)]
    return Recorded(archive.name.removeprefix("bench-").removesuffix(".tar.gz"), report, tuple(analysis.report(plan, rows, ()).results for plan in single))


def block(found: Sequence[Recorded]) -> str:
    """All three tables."""
    tables = (
        (PAIRS, [pair_row(item) for item in found]),
        (ARMS, [row for item in found for row in arm_rows(item)]),
        (CHANGES, [row for item in found for row in change_rows(item)]),
    )
    return "\n".join(_table(columns, rows) for columns, rows in tables)


def pair_row(item: Recorded) -> list[str]:
    """What was asked, and what came back."""
    plan, results = item.report.plan, item.report.results
    lengths = (f"{_name(arm.arm)} {_each(_length(result, arm.arm) for result in results)}" for arm in results[0].arms if arm.acceptance)
    equal = (f"{_name(arm.arm)} {_each(str(_arm(result, arm.arm).outputs_plain) for result in results)}" for arm in results[0].arms if arm.acceptance)
    counts = (plan.workload.requests, len(plan.workload.skipped), plan.output_tokens, plan.repeats)
    return [item.pair, *map(str, counts), ", ".join(lengths), ", ".join(equal)]


def arm_rows(item: Recorded) -> Iterator[list[str]]:
    """One row for each arm at each concurrency."""
    for at, result in enumerate(item.report.results):
        for arm in result.arms:
            each = [_arm(repeat[at], arm.arm) for repeat in item.repeats]
            yield [
                f"{item.pair}, {result.concurrency}",
                _name(arm.arm),
                f"{arm.throughput_median:,.0f} ({', '.join(f'{value:,.0f}' for value in arm.throughput)})",
                f"{max(arm.throughput) / min(arm.throughput):.2f}",
                f"{arm.step_ms:.2f} ({', '.join(f'{repeat.step_ms:.2f}' for repeat in each)})",
                f"{arm.end_to_end.p99:.0f}",
            ]


def change_rows(item: Recorded) -> Iterator[list[str]]:
    """One row for each two arms that the summary compares."""
    for result in item.report.results:
        found = {(change.arm, change.against, change.metric): change for change in result.changes}
        for arm, against in dict.fromkeys((change.arm, change.against) for change in result.changes):
            yield [f"{item.pair}, {result.concurrency}", f"{_name(arm)} / {_name(against)}", *(_change(found[arm, against, metric]) for metric in METRICS)]


def _each(values: Iterable[str]) -> str:
    """A value of each concurrency, or the one that they have in common."""
    return " and ".join(dict.fromkeys(values))


def _change(change: Change) -> str:
    return f"{change.median:.3f} ({change.low:.3f} to {change.high:.3f}) {change.verdict}"


def _name(arm: str) -> str:
    return NAMES.get(arm, arm)


def _arm(result: ConcurrencyResult, name: str) -> ArmResult:
    return next(arm for arm in result.arms if arm.arm == name)


def _length(result: ConcurrencyResult, name: str) -> str:
    found = _arm(result, name).acceptance
    return f"{found.length:.3f}" if found else "-"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (columns, *rows)).replace("\n", f"\n|{'---|' * len(columns)}\n", 1)


def page() -> str:
    """The page with the tables of today's evidence. `SystemExit` when the marks are missing, or in the section of another run."""
    archives, text = newest(), PAGE.read_text()
    before, mark, rest = text.partition(BEGIN)
    run, section = archives[0].parent.name, before.rpartition("\n## ")[2].partition("\n")[0]
    if not mark or END not in rest or section != run:
        raise SystemExit(f"{PAGE.name}: the marks of tools/bench_table.py belong into the section {run}")
    return filled(text, BEGIN, block([recorded(archive) for archive in archives]), END)


def main() -> int:
    """Write the page, or say whether it is up to date."""
    return write_or_check(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
