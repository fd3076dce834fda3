"""`spec-convert explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat


def complete_code(incomplete: str) -> list[str]:
    """Codes that start like that."""
    from speculators_convert.explain import explain

    return [item.code for item in explain(None).codes if item.code.startswith(incomplete.upper())]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("explain")
    def command(
        code: Annotated[
            str | None,
            typer.Argument(metavar="[CODE]", autocompletion=complete_code, help="DSP... of a check or GATE... of the gate; without it all codes are listed.", show_default=False),
        ] = None,
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Say what a code means, why it matters and how to fix it."""
        from speculators_convert.explain import explain

        answer = explain(code)
        if output_format is Format.JSON:
            output.json(answer)
        else:
            output.write(answer.text())
