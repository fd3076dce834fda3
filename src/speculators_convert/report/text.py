"""The text form of an inspect report, for a terminal or a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from speculators_convert.findings import EngineVerdict, Finding, Report, SizeInfo, TensorRow
from speculators_convert.geometry import human_bytes
from speculators_convert.model import Severity
from speculators_convert.report.base import printable

_UNWRAPPED = 100_000
_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_VERDICT_STYLE = {"loads": "green", "needs-normalize": "yellow", "unsupported": "red", "unknown": "dim"}


def render_plain(report: Report) -> str:
    """The report without colour, unwrapped, for a pipe or a file."""
    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=_UNWRAPPED, no_color=True, highlight=False))
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def print_report(report: Report, console: Console) -> None:
    """Write the whole report."""
    report = printable(report)
    console.print(Text(report.source.name, style="bold"), Text(f"{report.source.kind}, {len(report.source.files)} files, {human_bytes(report.source.total_bytes)}", style="dim"))
    for title, body in _sections(report):
        console.print()
        console.print(Text(title, style="bold underline"))
        console.print(Padding(body, (0, 0, 0, 2), expand=False))
    if report.engines:
        console.print()
        console.print(Text("Engines", style="bold underline"))
        for engine in report.engines:
            _print_engine(engine, console)
    console.print()
    console.print(_summary(report))


def _sections(report: Report) -> Iterator[tuple[str, RenderableType]]:
    yield "Format", Group(Text(report.format.title), *(Text(f"because {why}", style="dim") for why in report.format.why))
    if report.geometry:
        yield "Geometry", Group(*(Text(line) for line in report.geometry))
    if report.spec:
        yield "Evidence", _evidence(report)
    if report.tensors:
        yield f"Tensors ({len(report.tensors)})", _tensors(report.tensors)
    if report.size:
        yield "Size", _size(report.size)
    if report.findings:
        yield "Findings", Group(*(_finding(finding) for finding in report.findings))


def _evidence(report: Report) -> RenderableType:
    table = _plain_table("fact", "reading", "decided by", "also seen")
    items = report.spec.evidence if report.spec else ()
    for decided in (item for item in items if item.decides):
        others = [f"{item.says} ({item.source})" if item.says != decided.says else item.source for item in items if item.fact == decided.fact and not item.decides]
        table.add_row(decided.fact, decided.says, decided.source, ", ".join(others))
    return table


def _tensors(rows: tuple[TensorRow, ...]) -> RenderableType:
    groups: dict[tuple[str, str, tuple[int, ...]], list[TensorRow]] = {}
    for row in rows:
        groups.setdefault((re.sub(r"^layers\.\d+\.", "layers.*.", row.role), row.dtype, row.shape), []).append(row)
    table = _plain_table("role", "count", "dtype", "shape", "bytes")
    for (role, dtype, shape), members in groups.items():
        table.add_row(role, str(len(members)), dtype, str(list(shape)), human_bytes(sum(member.size_bytes for member in members)))
    return table


def _size(size: SizeInfo) -> RenderableType:
    lines = [f"tensors {human_bytes(size.tensor_bytes)}"]
    lines += [f"per rank at TP {degree}: {human_bytes(count)}" for degree, count in size.per_rank_bytes.items() if degree != "1"]
    borrowed = f", {human_bytes(size.borrowed_head_bytes)} of it the target's head" if size.borrowed_head_bytes else ""
    lines.append(f"read per drafted block: {human_bytes(size.read_per_block_bytes)}{borrowed}")
    return Group(*(Text(line) for line in lines))


def _finding(finding: Finding) -> RenderableType:
    head = Text.assemble((f"{finding.severity.value:<8}", _STYLE[finding.severity]), (finding.code, "bold"), f"  {finding.message}")
    where = finding.file + (f"#{finding.pointer}" if finding.pointer else "")
    details = {"subject": finding.subject, "where": where, "measured": finding.measured, "expected": finding.expected, "do": finding.hint}
    body = [Text(f"{name:<9} {value}", style="dim") for name, value in details.items() if value]
    return Group(head, Padding(Group(*body), (0, 0, 0, 9), expand=False))


def _print_engine(engine: EngineVerdict, console: Console) -> None:
    """Commands are never wrapped, so that they can be copied."""
    console.print(Text.assemble("  ", (f"{engine.engine} {engine.version}", "bold"), "  ", (engine.verdict, _VERDICT_STYLE[engine.verdict])))
    if engine.reasons:
        console.print(Padding(Group(*(Text(reason) for reason in engine.reasons)), (0, 0, 0, 6), expand=False))
    for line in engine.launch.splitlines():
        console.print(Text(f"      $ {line}", style="dim"), soft_wrap=True)


def _summary(report: Report) -> Text:
    counts = {severity: sum(finding.severity is severity for finding in report.findings) for severity in Severity}
    skipped = f"; {len(report.skipped)} checks skipped (JSON lists why)" if report.skipped else ""
    return Text(f"{counts[Severity.ERROR]} errors, {counts[Severity.WARNING]} warnings, {counts[Severity.INFO]} notes{skipped}", style="bold")


def _plain_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
