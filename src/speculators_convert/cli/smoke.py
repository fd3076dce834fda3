"""`spec-convert smoke`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Set, checked, parse_settings

if TYPE_CHECKING:
    from speculators_convert.results.smoke import Nodes

RESULT_NAME = "smoke-result.json"
_SGLANG = "SGLang"
_STATUS = {"pass": 0, "fail": 1, "not-run": 4}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("smoke")
    def command(
        reference: Annotated[
            str | None, typer.Argument(metavar="[REF]", help="Folder of the draft; without it a tiny trained pair that ships with the tool runs.", show_default=False)
        ] = None,
        target: Annotated[str | None, typer.Option("--target", metavar="REF", help="Folder of the target model; without it the checkpoint's own verifier.")] = None,
        engine: Annotated[str, typer.Option("--engine", help="Engine to run: reference, sglang, or auto, which is sglang where it and a CUDA device are there.")] = "auto",
        modes: Annotated[
            str | None,
            typer.Option(
                "--modes",
                help="Comma-separated modes of the engine: eager, graph (captured on CUDA, fixed shapes on a CPU). Both where SGLang runs on CUDA, else eager, unless stated.",
            ),
        ] = None,
        tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Run over N ranks, and compare with one.")] = 1,
        batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Requests that share one step.")] = 1,
        temperature: Annotated[
            float,
            typer.Option(
                "--temperature",
                min=0,
                help="Sample both models at this temperature and test the output's distribution; 0 is greedy. SGLang is always asked greedily, and sampled at this or 1.",
            ),
        ] = 0,
        seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of a sampled run.")] = 0,
        prompts: Annotated[
            str | None, typer.Option("--prompts", metavar="FILE", help="JSON lines with input_ids or text, mt-bench, or mmspec:FOLDER; without it eight built-in texts.")
        ] = None,
        max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens to generate per prompt.")] = 64,
        dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16; float32 on a CPU unless stated.")] = None,
        device: Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one unless stated.")] = None,
        timeout: Annotated[
            float, typer.Option("--timeout", min=1, metavar="SECONDS", help="After which the processes of a run with --tp, or a server of SGLang, are ended.")
        ] = 3600,
        floor: Annotated[float, typer.Option("--floor", help="Acceptance length under which the run fails.")] = 1.3,
        expect: Annotated[float | None, typer.Option("--expect", help="Acceptance length that must be reached within 0.05.")] = None,
        attention_backend: Annotated[str | None, typer.Option("--attention-backend", help="Of SGLang's target; chosen by the GPU unless stated.", rich_help_panel=_SGLANG)] = None,
        draft_attention_backend: Annotated[
            str | None, typer.Option("--draft-attention-backend", help="Of SGLang's draft; chosen by the GPU unless stated.", rich_help_panel=_SGLANG)
        ] = None,
        server_arg: Annotated[
            list[str] | None, typer.Option("--server-arg", metavar="WORD", help="A further word of each server's command line; repeat it.", rich_help_panel=_SGLANG)
        ] = None,
        concurrency: Annotated[int, typer.Option("--concurrency", min=2, help="Requests at once in the second pass over the prompts.", rich_help_panel=_SGLANG)] = 8,
        control: Annotated[
            bool, typer.Option("--control/--no-control", help="Compare with the null draft, which shows that verification is lossless.", rich_help_panel=_SGLANG)
        ] = True,
        parallel: Annotated[
            int | None, typer.Option("--parallel", min=1, help="Servers at once; as many as memory and cores allow unless stated.", rich_help_panel=_SGLANG)
        ] = None,
        image: Annotated[Path | None, typer.Option("--image", metavar="FILE", help="Also ask a multimodal target about this image.", rich_help_panel=_SGLANG)] = None,
        nnodes: Annotated[int, typer.Option("--nnodes", min=1, help="Machines that serve together.", rich_help_panel=_SGLANG)] = 1,
        node_rank: Annotated[int, typer.Option("--node-rank", min=0, help="This machine's place among them; 0 asks and judges.", rich_help_panel=_SGLANG)] = 0,
        dist_init_addr: Annotated[
            str | None, typer.Option("--dist-init-addr", metavar="HOST:PORT", help="Where they meet: an address of machine 0.", rich_help_panel=_SGLANG)
        ] = None,
        settings: Set = None,
        output_format: OutputFormat = Format.TEXT,
        out: Annotated[
            Path | None,
            typer.Option(
                "--out",
                metavar="PATH",
                help="Also write the JSON result: to this file when its name ends in .json, else to smoke-result.json in this folder, where a run of SGLang keeps "
                "logs and rows and goes on after an interruption.",
            ),
        ] = None,
        page: Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Also write the result as one self-contained page.")] = None,
    ) -> None:
        """Prove a draft by running it: drafted greedy decoding against the target alone, token for token."""
        from speculators_convert.api import smoke
        from speculators_convert.cli.signals import ended_by_signals
        from speculators_convert.results.smoke import ServerOptions, SmokeOptions
        from speculators_convert.smoke import pair

        folder = out if out is not None and out.suffix != ".json" else None
        servers = checked(
            ServerOptions,
            attention_backend=attention_backend, draft_attention_backend=draft_attention_backend, words=tuple(server_arg or ()), concurrency=concurrency, control=control,
            sampling_temperature=temperature or 1.0,
            parallel=parallel, image=str(image) if image else None, nodes=_nodes(nnodes, node_rank, dist_init_addr), out=str(folder) if folder else None,
        )  # fmt: skip

        options = checked(
            SmokeOptions,
            target=target, engine=engine, modes=tuple(modes.split(",")) if modes is not None else None, prompts=prompts, max_new_tokens=max_new_tokens,
            dtype=dtype, floor=floor, expect=expect,
            tp=tp, batch_size=batch_size, temperature=temperature, seed=seed, device=device, timeout_seconds=timeout, servers=servers,
        )  # fmt: skip
        output.demand_place(page, None if folder else out)
        output.demand_outside(Path(reference) if reference is not None and Path(reference).is_dir() else Path(pair.DRAFT), page, folder / RESULT_NAME if folder else out)
        if folder is not None:
            output.make_folder(folder)
        with ended_by_signals(), output.progress() as progress:
            result = smoke(reference, options=options, settings=parse_settings(settings), progress=progress)
        output.smoke(result, output_format, folder / RESULT_NAME if folder else out, page)
        raise typer.Exit(_STATUS[result.verdict])


def _nodes(count: int, rank: int, address: str | None) -> Nodes | None:
    """This machine's place; `UsageError` when the three options do not fit together."""
    from speculators_convert.errors import UsageError
    from speculators_convert.results.smoke import Nodes

    if count == 1:
        if rank or address:
            raise UsageError("one machine has no place among several", where="--nnodes", measured=1, expected="2 or more beside --node-rank and --dist-init-addr")
        return None
    if address is None or ":" not in address:
        raise UsageError("several machines need an address where they meet", where="--dist-init-addr", measured=address or "none", expected="HOST:PORT of machine 0")
    if rank >= count:
        raise UsageError("there is no such machine", where="--node-rank", measured=rank, expected=f"0 to {count - 1}")
    return Nodes(count=count, rank=rank, address=address)
