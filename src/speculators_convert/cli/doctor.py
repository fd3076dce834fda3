"""`spec-convert doctor`."""

from __future__ import annotations

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("doctor")
    def command(output_format: OutputFormat = Format.TEXT) -> None:
        """Show versions, plugin entry points, live hooks and their targets, GPU and NCCL of this environment; exit status 1 when something is wrong."""
        from speculators_convert.sglang_plugin.doctor import diagnose

        found = diagnose()
        output.doctor(found, output_format)
        raise typer.Exit(int(bool(found.problems)))
