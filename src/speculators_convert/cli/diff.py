"""`spec-convert diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("diff")
    def command(
        left: Annotated[str, typer.Argument(metavar="A", help="A draft checkpoint.", show_default=False)],
        right: Annotated[str, typer.Argument(metavar="B", help="The draft to compare with.", show_default=False)],
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Say whether two checkpoints are the same draft, whatever their packaging; exit status 0 only when they are."""
        from speculators_convert.api import diff

        result = diff(left, right)
        output.diff(result, output_format)
        raise typer.Exit(int(not result.same))
