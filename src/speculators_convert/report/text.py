"""The text form of an inspect report: lines of styled spans, so that a pipe gets plain text and a terminal gets colour from the same lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speculators_convert.findings import EngineVerdict, Finding, Report, SizeInfo, TensorRow
from speculators_convert.geometry import human_bytes
from speculators_convert.model import Severity, printable

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_VERDICT_STYLE = {"loads": "green", "needs-normalize": "yellow", "unsupported": "red"}


@dataclass(frozen=True, slots=True)
class Line:
    """Spans of (text, style); a command is never wrapped, so that it can be copied."""

    spans: tuple[tuple[str, str], ...] = ()
    command: bool = False

    @property
    def plain(self) -> str:
        """The text without style and without trailing blanks."""
        return printable("".join(text for text, _ in self.spans)).rstrip()


def render_plain(report: Report) -> str:
    """The report without colour and without wrapping."""
    return "".join(line.plain + "\n" for line in report_lines(report))


def print_report(report: Report, console: Console) -> None:
    """Write the report to a terminal."""
    from rich.text import Text  # noqa: PLC0415

    for line in report_lines(report):
        console.print(Text.assemble(*((printable(text), style) for text, style in line.spans)), soft_wrap=line.command)


def report_lines(report: Report) -> Iterator[Line]:
    """All lines of the report."""
    yield _line((report.source.name, "bold"), (f"  {report.source.kind}, {len(report.source.files)} files, {human_bytes(report.source.total_bytes)}", "dim"))
    for title, body in _sections(report):
        yield Line()
        yield _line((title, "bold underline"))
        for line in body:
            yield Line((("  ", ""), *line.spans), line.command)
    yield Line()
    yield _summary(report)


def _sections(report: Report) -> Iterator[tuple[str, Iterator[Line]]]:
    yield "Format", iter([_line((report.format.title, "")), *(_line((f"because {why}", "dim")) for why in report.format.why)])
    if report.geometry:
        yield "Geometry", (_line((sentence, "")) for sentence in report.geometry)
    if report.spec:
        yield "Evidence", _evidence(report)
    if report.tensors:
        yield f"Tensors ({len(report.tensors)})", _tensors(report.tensors)
    if report.size:
        yield "Size", _size(report.size)
    if report.findings:
        yield "Findings", (line for finding in report.findings for line in _finding(finding))
    if report.engines:
        yield "Engines", (line for engine in report.engines for line in _engine(engine))


def _evidence(report: Report) -> Iterator[Line]:
    items = report.spec.evidence if report.spec else ()
    rows = []
    for decided in (item for item in items if item.decides):
        others = [item.source if item.says == decided.says else f"{item.says} ({item.source})" for item in items if item.fact == decided.fact and not item.decides]
        rows.append((decided.fact, decided.says, decided.source, ", ".join(others)))
    return _table(("fact", "reading", "decided by", "also seen"), rows)


def _tensors(rows: tuple[TensorRow, ...]) -> Iterator[Line]:
    groups: dict[tuple[str, str, tuple[int, ...]], list[TensorRow]] = {}
    for row in rows:
        groups.setdefault((re.sub(r"^layers\.\d+\.", "layers.*.", row.role), row.dtype, row.shape), []).append(row)
    table = [(role, str(len(members)), dtype, str(list(shape)), human_bytes(sum(member.size_bytes for member in members))) for (role, dtype, shape), members in groups.items()]
    return _table(("role", "count", "dtype", "shape", "bytes"), table)


def _size(size: SizeInfo) -> Iterator[Line]:
    yield _line((f"tensors {human_bytes(size.tensor_bytes)}", ""))
    for degree, count in size.per_rank_bytes.items():
        if degree != "1":
            yield _line((f"per rank at TP {degree}: {human_bytes(count)}", ""))
    borrowed = f", {human_bytes(size.borrowed_head_bytes)} of it the target's head" if size.borrowed_head_bytes else ""
    yield _line((f"read per drafted block: {human_bytes(size.read_per_block_bytes)}{borrowed}", ""))


def _finding(finding: Finding) -> Iterator[Line]:
    yield _line((f"{finding.severity.value:<8}", _STYLE[finding.severity]), (finding.code, "bold"), (f"  {finding.message}", ""))
    where = finding.file + (f"#{finding.pointer}" if finding.pointer else "")
    details = {"subject": finding.subject, "where": where, "measured": finding.measured, "expected": finding.expected, "do": finding.hint}
    for name, value in details.items():
        if value:
            yield _line((f"         {name:<9} {value}", "dim"))


def _engine(engine: EngineVerdict) -> Iterator[Line]:
    yield _line((f"{engine.engine} {engine.version}", "bold"), ("  ", ""), (engine.verdict, _VERDICT_STYLE[engine.verdict]))
    for reason in engine.reasons:
        yield _line((f"    {reason}", ""))
    for text in engine.launch.splitlines():
        yield Line(((f"    $ {text}", "dim"),), command=True)


def _summary(report: Report) -> Line:
    counts = {severity: sum(finding.severity is severity for finding in report.findings) for severity in Severity}
    skipped = f"; {len(report.skipped)} checks skipped (JSON lists why)" if report.skipped else ""
    return _line((f"{counts[Severity.ERROR]} errors, {counts[Severity.WARNING]} warnings, {counts[Severity.INFO]} notes{skipped}", "bold"))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """Columns as wide as their longest cell, two blanks between."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for number, row in enumerate((head, *rows)):
        yield _line(("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), "" if number else "dim"))


def _line(*spans: tuple[str, str]) -> Line:
    return Line(spans)
