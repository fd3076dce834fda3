"""`spec-convert smoke`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Set, parse_settings

_STATUS = {"pass": 0, "fail": 1, "not-run": 4}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("smoke")
    def command(
        reference: Annotated[
            str | None, typer.Argument(metavar="[REF]", help="Folder of the draft; without it a tiny trained pair that ships with the tool runs.", show_default=False)
        ] = None,
        target: Annotated[str | None, typer.Option("--target", metavar="REF", help="Folder of the target model; without it the checkpoint's own verifier.")] = None,
        engine: Annotated[str, typer.Option("--engine", help="Engine to run: reference.")] = "reference",
        modes: Annotated[str, typer.Option("--modes", help="Comma-separated modes of the engine.")] = "eager",
        prompts: Annotated[str | None, typer.Option("--prompts", metavar="FILE", help="JSON lines with input_ids or text; without it eight built-in texts.")] = None,
        max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens to generate per prompt.")] = 64,
        dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16; float32 on a CPU unless stated.")] = None,
        floor: Annotated[float, typer.Option("--floor", help="Acceptance length under which the run fails.")] = 1.3,
        expect: Annotated[float | None, typer.Option("--expect", help="Acceptance length that must be reached within 0.05.")] = None,
        settings: Set = None,
        output_format: OutputFormat = Format.TEXT,
        out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON result to this file.")] = None,
    ) -> None:
        """Prove a draft by running it: drafted greedy decoding against the target alone, token for token."""
        from speculators_convert.api import smoke  # noqa: PLC0415
        from speculators_convert.smoke_result import SmokeOptions  # noqa: PLC0415

        options = SmokeOptions(
            target=target, engine=engine, modes=tuple(modes.split(",")), prompts=prompts, max_new_tokens=max_new_tokens, dtype=dtype, floor=floor, expect=expect,
        )  # fmt: skip
        with output.progress() as progress:
            result = smoke(reference, options=options, settings=parse_settings(settings), progress=progress)
        output.smoke(result, output_format, out)
        raise typer.Exit(_STATUS[result.verdict])
