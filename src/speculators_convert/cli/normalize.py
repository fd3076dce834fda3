"""`spec-convert normalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Reference, Set, Target, TensorParallel, parse_settings
from speculators_convert.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("normalize")
    def command(
        reference: Reference,
        out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder to write; must not exist.", show_default=False)] = None,
        layout: Annotated[str, typer.Option("--layout", help="speculators or sglang.")] = "speculators",
        target: Target = None,
        tp: TensorParallel = None,
        settings: Set = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, write nothing.")] = False,
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Rewrite a draft for an engine: new config and headers, tensor data byte for byte."""
        from speculators_convert.api import look, normalize, plan_rewrite  # noqa: PLC0415

        stated = parse_settings(settings)
        if dry_run:
            output.plan(plan_rewrite(look(reference, target=target, tp=tp or (), settings=stated), layout=layout), output_format)
            return
        if out is None:
            raise UsageError("normalize needs --out DIR", hint="or --dry-run to see what would be written")
        with output.progress() as progress:
            receipt = normalize(reference, out, layout=layout, target=target, tp=tp or (), settings=stated, progress=progress)
        output.receipt(receipt, out, output_format)
