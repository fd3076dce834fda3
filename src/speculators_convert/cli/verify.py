"""`spec-convert verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("verify")
    def command(
        folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that `normalize` wrote.", show_default=False)],
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Recompute each digest of a receipt: 0 when every byte is as it was written, 1 when not, 3 without a receipt."""
        from speculators_convert.publish.check import verify

        answer = verify(folder)
        if output_format is Format.JSON:
            output.json(answer)
        else:
            output.write(answer.text())
        raise typer.Exit(int(not answer.holds))
