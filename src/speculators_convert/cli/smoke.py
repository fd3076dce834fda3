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
        modes: Annotated[str, typer.Option("--modes", help="Comma-separated modes of the engine: eager, graph (captured on CUDA, fixed shapes on a CPU).")] = "eager",
        tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Split the draft's head over N ranks, and compare with one.")] = 1,
        batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Requests that share one step.")] = 1,
        temperature: Annotated[float, typer.Option("--temperature", min=0, help="Sample both models at this temperature and test the output's distribution; 0 is greedy.")] = 0,
        seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of a sampled run.")] = 0,
        prompts: Annotated[str | None, typer.Option("--prompts", metavar="FILE", help="JSON lines with input_ids or text; without it eight built-in texts.")] = None,
        max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens to generate per prompt.")] = 64,
        dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16; float32 on a CPU unless stated.")] = None,
        device: Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one unless stated.")] = None,
        timeout: Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="After which the processes of a run with --tp are ended.")] = 3600,
        floor: Annotated[float, typer.Option("--floor", help="Acceptance length under which the run fails.")] = 1.3,
        expect: Annotated[float | None, typer.Option("--expect", help="Acceptance length that must be reached within 0.05.")] = None,
        settings: Set = None,
        output_format: OutputFormat = Format.TEXT,
        out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON result to this file.")] = None,
    ) -> None:
        """Prove a draft by running it: drafted greedy decoding against the target alone, token for token."""
        from speculators_convert.api import smoke
        from speculators_convert.smoke_result import SmokeOptions

        options = SmokeOptions(
            target=target, engine=engine, modes=tuple(modes.split(",")), prompts=prompts, max_new_tokens=max_new_tokens, dtype=dtype, floor=floor, expect=expect,
            tp=tp, batch_size=batch_size, temperature=temperature, seed=seed, device=device, timeout_seconds=timeout,
        )  # fmt: skip
        with output.progress() as progress:
            result = smoke(reference, options=options, settings=parse_settings(settings), progress=progress)
        output.smoke(result, output_format, out)
        raise typer.Exit(_STATUS[result.verdict])
