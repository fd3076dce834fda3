"""The results table of docs/equivalence.md, from the recorded smoke runs: python tools/equivalence_table.py [--check]

Each row is one run in docs/evidence/RUN/smoke-*.json. Written between the marks in the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from marked_page import filled, write_or_check  # tools/marked_page.py, beside this file
from speculators_convert.results.smoke import Comparison, Equivalence, SmokeResult

ROOT = Path(__file__).resolve().parent.parent
PAGE, EVIDENCE = ROOT / "docs/equivalence.md", ROOT / "docs/evidence"
BEGIN, END = "<!-- RESULTS begin: tools/equivalence_table.py -->\n", "<!-- RESULTS end -->\n"
COLUMNS = ("run", "mode", "drafted = null draft, alone; at once", "ordinary, alone: exact, ties, defects", "at once", "null draft: exact, ties", "acceptance")
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


def table() -> str:
    """The page's rows, one for each mode of each run."""
    lines = [line for file in sorted(EVIDENCE.glob("*/smoke-*.json")) for line in rows(file)]
    return HEADER + "".join(lines) if lines else "Not yet recorded.\n"


def rows(file: Path) -> Iterator[str]:
    """One row for each mode and degree of a run."""
    result = SmokeResult.model_validate_json(file.read_text())
    if result.engine != "sglang":
        return
    name = file.stem.removeprefix("smoke-")
    for mode in (item for item in result.modes if item.concurrency == 1 and not item.temperature):
        found = [item for item in result.equivalence if (item.mode, item.tp) == (mode.mode, mode.tp)]
        control = [_equal(result.comparisons, mode.mode, mode.tp, many) for many in ("", f", {result.parameters['servers']['concurrency']} at once")]  # type: ignore[index,call-overload]
        ordinary = [_verdicts(found, "plain", many) for many in (False, True)]
        null = next((f"{item.exact}, {item.ties}" for item in found if "null draft" in item.against), "")
        yield f"| {name} | {mode.mode}, TP {mode.tp} | {'; '.join(filter(None, control)) or '-'} | {ordinary[0]} | {ordinary[1]} | {null or '-'} | {mode.acceptance_length:.3f} |\n"


def _equal(comparisons: tuple[Comparison, ...], mode: str, tp: int, many: str) -> str:
    """Equal prompts of the control's claim, such as 20 of 20."""
    wanted = f"{mode} tp {tp}{many}: drafted greedy equals the null draft's"
    return next((item.measured.removesuffix(" prompts equal") for item in comparisons if item.name.startswith(wanted)), "")


def _verdicts(found: list[Equivalence], against: str, many: bool) -> str:
    return next((f"{item.exact}, {item.ties}, {item.defects}" for item in found if item.against == against and (item.concurrency > 1) is many), "-")


def page() -> str:
    """The page with the table of today's evidence."""
    return filled(PAGE.read_text(), BEGIN, table(), END)


def main() -> int:
    """Write the page, or say whether it is up to date."""
    return write_or_check(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
