"""`spec-convert gate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Reference, Target
from speculators_convert.errors import SourceError, UsageError

if TYPE_CHECKING:
    from speculators_convert.gate.verdict import GateReport

STATUS = {"pass": 0, "fail": 1, "unreadable": 3}
MAX_CARD_BYTES = 16 * 1024 * 1024


class GateFormat(StrEnum):
    """Output forms of the gate."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"


def complete_policy(incomplete: str) -> list[str]:
    """Names of built-in policies, and policy files here."""
    from speculators_convert.policies import BUILT_IN

    return [name for name in (*BUILT_IN, *sorted(path.name for path in Path().glob("*.json"))) if name.startswith(incomplete)]


Policy = Annotated[
    str, typer.Option("--policy", metavar="default|publish|FILE", autocompletion=complete_policy, help="What must hold. publish also asks for the target and for smoke evidence.")
]
EvidenceFiles = Annotated[list[str] | None, typer.Option("--evidence", metavar="FILE", help="Result that `smoke --out` wrote; repeatable.", show_default=False)]
ReportFormat = Annotated[GateFormat, typer.Option("--format", help="Form of the report.")]
ReportFile = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the report to this file, on failure too; the text verdict then goes to stdout.", show_default=False)
]
MoreReports = Annotated[list[str] | None, typer.Option("--also", metavar="FORMAT=FILE", help="A further report of the same run; repeatable.", show_default=False)]
Card = Annotated[Path | None, typer.Option("--card", metavar="FILE", help="On a pass, write the generated section into this model card, between its markers.", show_default=False)]
Repository = Annotated[str, typer.Option("--repo", metavar="ORG/NAME", help="Name on the Hub, for the commands in the model card.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("gate")
    def command(
        reference: Reference,
        target: Target = None,
        policy: Policy = "default",
        evidence: EvidenceFiles = None,
        output_format: ReportFormat = GateFormat.TEXT,
        out: ReportFile = None,
        also: MoreReports = None,
        card: Card = None,
        repository: Repository = "THIS_REPO",
    ) -> None:
        """Decide whether a draft may be published: findings, receipt and evidence against a policy. 0 pass, 1 fail, 3 unreadable."""
        from speculators_convert.publish.check import GateRequest, gate

        files = report_files(output_format, out, also)
        answer = gate(GateRequest(reference, policy=policy, target=target, evidence=tuple(evidence or ())), note=output.note)
        emit(answer, output_format, files, to_stdout=out is None)
        if card is not None:
            write_card(answer, card, repository)
        raise typer.Exit(STATUS[answer.outcome])


def report_files(output_format: GateFormat, out: Path | None, also: list[str] | None) -> dict[Path, str]:
    """Report file to format; `UsageError` for an unknown format or a file that is named twice."""
    files = {out: output_format.value} if out is not None else {}
    for pair in also or ():
        name, equals, path = pair.partition("=")
        if not equals or not path or name not in set(GateFormat):
            raise UsageError("--also takes FORMAT=FILE", where=pair, expected=f"FORMAT is one of {', '.join(GateFormat)}")
        if Path(path) in files:
            raise UsageError("two reports go to one file", where=path, hint="name another file")
        files[Path(path)] = name
    return files


def emit(answer: GateReport, output_format: GateFormat, files: dict[Path, str], *, to_stdout: bool) -> None:
    """Write each report; the verdict always reaches stdout."""
    from speculators_convert.report import reporters

    known = reporters()
    for path, name in files.items():
        output.write_file(path, known[name].render(answer))
    output.write(known[output_format.value if to_stdout else "text"].render(answer))


def write_card(answer: GateReport, path: Path, repository: str) -> None:
    """Put the generated section into the card; a gate that did not pass leaves the card as it is."""
    from speculators_convert.publish.card import section, splice
    from speculators_convert.sources.bounded import read_bounded

    if answer.outcome != "pass":
        output.note(f"{path} was left as it is: the gate did not pass")
        return
    try:
        before = read_bounded(path, MAX_CARD_BYTES).decode("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError("cannot read the model card", where=str(path), measured=str(error)[:120], expected="UTF-8 text") from error
    output.write_file(path, splice(before, section(answer, repository)))
    output.note(f"wrote the generated section of {path}")
