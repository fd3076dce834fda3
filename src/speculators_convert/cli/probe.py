"""`spec-convert probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Reference, Set, checked, parse_settings


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("probe")
    def command(
        reference: Reference,
        target: Annotated[str | None, typer.Option("--target", metavar="REF", help="Folder of the target model; without it the checkpoint's own verifier.")] = None,
        prompts: Annotated[
            list[str] | None,
            typer.Option("--prompts", metavar="FILE", help="JSON lines with input_ids or text, some with the target's own continuation; repeatable; without it built-in texts."),
        ] = None,
        dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16; float32 on a CPU unless stated.")] = None,
        device: Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one unless stated.")] = None,
        settings: Set = None,
        output_format: OutputFormat = Format.TEXT,
        out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON result to this file.")] = None,
    ) -> None:
        """Draft under each reading that a file can be mistaken for, and say which fits best: exit status 1 when that contradicts the file."""
        from speculators_convert.api import probe
        from speculators_convert.results.probe import ProbeOptions

        options = checked(ProbeOptions, target=target, prompts=tuple(prompts or ()), dtype=dtype, device=device)
        output.demand_place(out)
        output.demand_outside(Path(reference), out)
        with output.progress() as progress:
            result = probe(reference, options=options, settings=parse_settings(settings), progress=progress)
        output.probe(result, output_format, out)
        raise typer.Exit(int(result.contradicts))
