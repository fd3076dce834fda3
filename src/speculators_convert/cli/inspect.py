"""`spec-convert inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import FailOn, Format, OutputFormat, Reference, Set, Target, TensorParallel, parse_settings


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("inspect")
    def command(
        reference: Reference,
        target: Target = None,
        tp: TensorParallel = None,
        settings: Set = None,
        deep: Annotated[bool, typer.Option("--deep", help="Read all weights once: NaN, zero, constant and untrained tensors; with --target each shared row.")] = False,
        fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Lowest severity that makes the exit status 1.")] = FailOn.ERROR,
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Say what a draft checkpoint is, what is wrong with it, and which engines read it."""
        from speculators_convert.api import inspect

        with output.progress() as progress:
            report = inspect(reference, target=target, tp=tp or (), settings=parse_settings(settings), deep=deep, progress=progress)
        output.report(report, output_format)
        worst = report.worst()
        raise typer.Exit(int(worst is not None and worst.rank >= fail_on.severity.rank))
