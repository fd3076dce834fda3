"""`spec-convert normalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Reference, Set, Target, parse_settings
from speculators_convert.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("normalize")
    def command(
        reference: Reference,
        out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder to write; must not exist.", show_default=False)] = None,
        layout: Annotated[str, typer.Option("--layout", help="speculators, sglang, sglang-dense, deepspec or specforge.")] = "speculators",
        target: Target = None,
        tp: Annotated[
            list[int] | None,
            typer.Option(
                "--tp",
                min=1,
                max=1024,
                metavar="N",
                help="Check the heads for N ranks; repeatable. A single N above 1 also writes the vocabulary-parallel heads as one file per rank.",
            ),
        ] = None,
        rank_pad: Annotated[int, typer.Option("--rank-pad", min=1, max=1024, help="Columns that sglang-dense adds to the Markov rank.")] = 8,
        reduce_vocab: Annotated[
            str | None, typer.Option("--reduce-vocab", metavar="t2d.npy|N", help="Reduce a full vocabulary to a mask or to the N most frequent tokens of --corpus.")
        ] = None,
        corpus: Annotated[Path | None, typer.Option("--corpus", metavar="FILE", help="JSON lines of token ids that --reduce-vocab counts.")] = None,
        copy_code: Annotated[
            bool,
            typer.Option("--copy-code", help="Also copy .py files byte for byte and, in the speculators layout, keep auto_map. Nothing is run here; loaders that trust it run it."),
        ] = False,
        link: Annotated[
            bool,
            typer.Option("--link", help="Link files that equal a file of a source folder on the same disk (reflink, else hard link) instead of copying them."),
        ] = False,
        settings: Set = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, write nothing.")] = False,
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Rewrite a draft for an engine: new config and headers, tensor data byte for byte."""
        from speculators_convert.api import RewriteChoices, look, normalize, plan_rewrite

        stated, degrees = parse_settings(settings), tp or []
        split = degrees[0] if len(degrees) == 1 and degrees[0] > 1 else None
        choices = RewriteChoices(layout=layout, split=split, rank_pad=rank_pad, reduce_vocab=reduce_vocab, corpus=corpus, copy_code=copy_code, link=link)
        if dry_run:
            output.plan(plan_rewrite(look(reference, target=target, tp=degrees, settings=stated), choices), output_format)
            return
        if out is None:
            raise UsageError("normalize needs --out DIR", hint="or --dry-run to see what would be written")
        with output.progress() as progress:
            receipt = normalize(reference, out, target=target, tp=degrees, settings=stated, choices=choices, progress=progress)
        output.receipt(receipt, out, output_format)
