"""The commands behind the pre-commit hooks: changed files in, one verdict for each folder that they belong to."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.gate import STATUS, Policy

Files = Annotated[list[str], typer.Argument(metavar="FILES...", help="Files that changed.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands; they are for hooks and stay out of the help."""

    @app.command("gate-folders", hidden=True)
    def gate_folders(files: Files, policy: Policy = "default") -> None:
        """Run the gate on each folder of FILES that holds weights."""
        from speculators_convert.publish.check import GateRequest, gate
        from speculators_convert.report import reporters

        statuses = [0]
        for folder in _folders(files):
            if any(Path(folder).glob("*.safetensors")):
                answer = gate(GateRequest(folder, policy=policy))
                statuses.append(STATUS[answer.outcome])
                output.write(reporters()["text"].render(answer))
        raise typer.Exit(max(statuses))

    @app.command("verify-folders", hidden=True)
    def verify_folders(files: Files) -> None:
        """Verify each folder of FILES that has a receipt."""
        from speculators_convert.publish.check import verify
        from speculators_convert.rewrite.receipt import RECEIPT_NAME

        broken = False
        for folder in _folders(files):
            if (Path(folder) / RECEIPT_NAME).exists():
                answer = verify(Path(folder))
                broken |= not answer.holds
                output.write(answer.text())
        raise typer.Exit(int(broken))


def _folders(files: list[str]) -> list[str]:
    return sorted({str(PurePosixPath(name).parent) for name in files})
