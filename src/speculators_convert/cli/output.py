"""Where answers go: stdout has the answer only, stderr the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from speculators_convert.cli.options import Format
from speculators_convert.errors import UsageError, WriteError
from speculators_convert.model import Model, pretty_json, printable

if TYPE_CHECKING:
    from pathlib import Path

    from speculators_convert.api import Progress
    from speculators_convert.diff import DiffResult
    from speculators_convert.findings import Report
    from speculators_convert.results.bench import BenchReport
    from speculators_convert.results.probe import ProbeResult
    from speculators_convert.results.smoke import SmokeResult
    from speculators_convert.rewrite.plan import RewritePlan
    from speculators_convert.rewrite.receipt import Receipt
    from speculators_convert.sglang_plugin.doctor import Doctor

_BYTES = {"writing", "reading weights"}
"""Tasks that count bytes."""


def json(value: Model) -> None:
    """Write a value as JSON."""
    from speculators_convert.report.json_ import render

    write(render(value))


def report(value: Report, output_format: Format) -> None:
    """Write an inspect report."""
    if output_format is Format.JSON:
        json(value)
        return
    from speculators_convert.report.text import print_report, render_plain

    if sys.stdout.isatty():
        from rich.console import Console

        print_report(value, Console(highlight=False))
    else:
        write(render_plain(value))


def plan(value: RewritePlan, output_format: Format) -> None:
    """Write what a rewrite would do."""
    if output_format is Format.JSON:
        json(value)
        return
    from speculators_convert.report.rewrite import plan_lines

    _write_lines(plan_lines(value))


def receipt(value: Receipt, out: Path, output_format: Format) -> None:
    """Write what a rewrite did."""
    if output_format is Format.JSON:
        write(pretty_json(value.document()))
        return
    from speculators_convert.report.rewrite import receipt_lines

    _write_lines(receipt_lines(value, out))


def diff(value: DiffResult, output_format: Format) -> None:
    """Write whether two drafts are the same, and each difference."""
    if output_format is Format.JSON:
        json(value)
        return
    lines = [f"{item.kind:<10} {item.name}: {item.left} | {item.right}" for item in value.differences]
    lines += [f"note       {note}" for note in value.notes]
    lines.append("the same draft" if value.same else f"different drafts: {len(value.differences)} differences")
    _write_lines(lines)


def doctor(value: Doctor, output_format: Format) -> None:
    """Write the state of an SGLang environment."""
    if output_format is Format.JSON:
        json(value)
        return
    lines = [f"python {value.python}  {value.platform}", *(f"{name:<22} {found or 'not installed'}" for name, found in value.versions.items())]
    lines += [f"plugin  {item.name} = {item.value}{'' if item.selected else '  (left out by SGLANG_PLUGINS)'}" for item in value.plugins]
    lines += [f"hook    {'live' if item.live else 'NOT LIVE' if item.needed else 'not needed here':<16}{item.target}  {item.purpose}" for item in value.hooks]
    lines += [f"gpu     {item.index}: {item.name}, sm_{item.capability}, {item.memory_bytes} bytes" for item in value.devices]
    lines += [f"cuda {value.cuda or 'none'}  nccl {value.nccl or 'none'}", *(f"problem {problem}" for problem in value.problems)]
    lines.append("a Speculators draft would be refused here" if value.problems else "a Speculators draft would be served here")
    _write_lines(lines)


def smoke(value: SmokeResult, output_format: Format, out: Path | None, page: Path | None = None) -> None:
    """Write a smoke result, its JSON to `out`, and its page to `page`."""
    from speculators_convert.report.json_ import render

    if out is not None:
        write_file(out, render(value))
    if page is not None:
        from speculators_convert.report.smoke_html import smoke_html

        write_file(page, smoke_html(value))
    if output_format is Format.JSON:
        json(value)
        return
    from speculators_convert.report.smoke_text import smoke_lines

    _write_lines(smoke_lines(value))


def probe(value: ProbeResult, output_format: Format, out: Path | None) -> None:
    """Write a probe result, and its JSON to `out`."""
    from speculators_convert.report.json_ import render

    if out is not None:
        write_file(out, render(value))
    if output_format is Format.JSON:
        json(value)
        return
    from speculators_convert.report.probe_text import probe_lines

    _write_lines(probe_lines(value))


def bench(value: BenchReport, output_format: Format, html: Path | None, png: Path | None) -> None:
    """Write a performance report, its page and its picture."""
    if html is not None:
        from speculators_convert.report.bench_html import render_bench

        write_file(html, render_bench(value))
    if png is not None:
        from speculators_convert.report.bench_png import write_png

        write_png(value, png)
    if output_format is Format.JSON:
        json(value)
        return
    from speculators_convert.report.bench_text import bench_lines

    _write_lines(bench_lines(value))


def demand_place(*files: Path | None) -> None:
    """`WriteError` now, not after the run, when a result file has no folder to go to, or is one."""
    for file in files:
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            why = "Is a directory" if file.is_dir() else "No such file or directory"
            raise WriteError(f"cannot write the file ({why})", where=str(file), hint="name a file in a folder that exists and that you may write to")


def demand_outside(folder: Path, *files: Path | None) -> None:
    """`UsageError` when a file would lie inside `folder`, whose files are not to be replaced, or two would be one."""
    named = [file.resolve() for file in files if file is not None]
    for file in named:
        if file.is_relative_to(folder.resolve()):
            raise UsageError("the file would lie among those that it is about", where=str(file), expected=f"a place outside {folder}")
    if len(set(named)) < len(named):
        raise UsageError("two results cannot be one file", where=str(named[0]), expected="a name for each")


def make_folder(folder: Path) -> None:
    """The folder of a run; `WriteError` says why it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot make the folder ({error.strerror})", where=str(folder), hint="name a folder that you may write to") from error


def write_file(path: Path, text: str) -> None:
    """Write a result file; `WriteError` says why it could not be written."""
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise WriteError(f"cannot write the file ({error.strerror})", where=str(path), hint="name a file in a folder that exists and that you may write to") from error


def _write_lines(lines: Iterable[str]) -> None:
    """Write lines, characters that could deceive a terminal escaped."""
    write("".join(printable(line) + "\n" for line in lines))


def write(text: str) -> None:
    """Write text to stdout; what the terminal's encoding lacks, and what would steer the terminal, is escaped."""
    _to(sys.stdout, text)


def note(text: str) -> None:
    """Write a line to stderr."""
    _to(sys.stderr, text + "\n")


def _to(stream: TextIO, text: str) -> None:
    safe = printable(text, lines=True)
    try:
        stream.write(safe)
    except UnicodeEncodeError:
        encoding = stream.encoding or "utf-8"
        stream.write(safe.encode(encoding, "backslashreplace").decode(encoding))


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress callback that draws bars on a terminal's stderr, and nothing elsewhere."""
    from speculators_convert.api import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    amount = TextColumn("{task.fields[amount]}")
    with Bars(TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(elapsed_when_finished=True), console=Console(file=sys.stderr), transient=True) as bars:
        tasks: dict[str, int] = {}

        def update(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, amount="")
            bars.update(tasks[what], completed=done, total=total, amount=_amount(done, total, bars.tasks[tasks[what]].speed, what))  # type: ignore[arg-type]

        yield update


def _amount(done: int, total: int, per_second: float | None, what: str) -> str:
    """How much is done, and for bytes how fast."""
    if what not in _BYTES:
        return f"{done}/{total}"
    from speculators_convert.geometry import human_bytes

    return f"{human_bytes(done)} of {human_bytes(total)}" + (f", {human_bytes(int(per_second))}/s" if per_second else "")
