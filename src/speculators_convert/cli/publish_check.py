"""`spec-convert publish-check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.gate import STATUS, EvidenceFiles, GateFormat, MoreReports, Policy, ReportFile, ReportFormat, Repository, emit, report_files, write_card
from speculators_convert.cli.options import Target


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("publish-check")
    def command(
        folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that is about to be uploaded.", show_default=False)],
        target: Target = None,
        policy: Policy = "publish",
        evidence: EvidenceFiles = None,
        output_format: ReportFormat = GateFormat.TEXT,
        out: ReportFile = None,
        also: MoreReports = None,
        card: Annotated[bool, typer.Option("--card", help="On a pass, write the generated section into README.md of the folder.")] = False,
        repository: Repository = "THIS_REPO",
    ) -> None:
        """The gate for a folder before `hf upload`: also looks at each file that would be sent, and at the model card."""
        from speculators_convert.publish.check import GateRequest, gate

        files = report_files(output_format, out, also)
        request = GateRequest(folder, policy=policy, target=target, evidence=tuple(evidence or ()), folder_is_uploaded=True)
        answer = gate(request, note=output.note)
        emit(answer, output_format, files, to_stdout=out is None)
        if card:
            write_card(answer, Path(folder) / "README.md", repository)
        if answer.outcome == "pass":
            output.note(f"upload it with: hf upload {repository} {folder}")
        raise typer.Exit(STATUS[answer.outcome])
