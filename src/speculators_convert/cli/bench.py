"""`spec-convert bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speculators_convert.cli import output
from speculators_convert.cli.options import Format, OutputFormat, Set, checked, parse_settings
from speculators_convert.cli.signals import ended_by_signals
from speculators_convert.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("bench")
    def command(
        references: Annotated[list[str], typer.Argument(metavar="REF | analyze DIR", help="Folder of the draft; or the word analyze and the folder of a run.", show_default=False)],
        target: Annotated[str | None, typer.Option("--target", metavar="REF", help="Folder of the target model; without it the checkpoint's own verifier.")] = None,
        out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder of the run; a run that stopped goes on in it.")] = None,
        engine: Annotated[str, typer.Option("--engine", help="sglang, or reference (one request at a time).")] = "sglang",
        workload: Annotated[str, typer.Option("--workload", metavar="NAME|FILE", help="mt-bench, mmspec:FOLDER, or JSON lines with input_ids or text.")] = "mt-bench",
        topic_limit: Annotated[int | None, typer.Option("--per-topic", min=1, metavar="N", help="The first N requests of each topic.")] = None,
        output_tokens: Annotated[int, typer.Option("--output-tokens", min=2, metavar="N", help="Exact number of tokens of each request.")] = 128,
        concurrency: Annotated[list[int] | None, typer.Option("--concurrency", min=1, metavar="N", help="Requests in flight; repeatable.  [default: 1]")] = None,
        repeats: Annotated[int, typer.Option("--repeats", min=1, help="Fresh servers of each arm; every other repeat runs the arms the other way round.")] = 3,
        warm_up: Annotated[int, typer.Option("--warm-up", min=1, metavar="N", help="Unmeasured requests for each one in flight.")] = 4,
        also: Annotated[list[str] | None, typer.Option("--also", metavar="NAME=REF", help="A further draft in the same run; repeatable.")] = None,
        stock: Annotated[list[str] | None, typer.Option("--stock", metavar="NAME", help="Serve this draft without the plugin; repeatable.")] = None,
        side_by_side: Annotated[int, typer.Option("--side-by-side", min=1, metavar="N", help="Servers that start together; one at a time is asked.")] = 1,
        mode: Annotated[str | None, typer.Option("--mode", help="eager or graph; graph on a GPU unless stated.")] = None,
        tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Tensor-parallel degree of the servers.")] = 1,
        dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16; bfloat16 on a GPU unless stated.")] = None,
        device: Annotated[str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one unless stated.")] = None,
        attention: Annotated[str | None, typer.Option("--attention-backend", metavar="NAME", help="SGLang's back end; triton on a GPU unless stated.")] = None,
        draft_attention: Annotated[str | None, typer.Option("--draft-attention-backend", metavar="NAME", help="The same for the draft; the target's unless stated.")] = None,
        server_words: Annotated[list[str] | None, typer.Option("--server-arg", metavar="WORD", help="Further word of each server's command line; repeatable.")] = None,
        timeout: Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Of one server, from its start to its last answer.")] = 900,
        budget: Annotated[float | None, typer.Option("--budget", min=1, metavar="SECONDS", help="Start no server that might end later; the same call goes on.")] = None,
        settings: Set = None,
        html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as one HTML page.")] = None,
        png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Also write the picture (needs matplotlib).")] = None,
        output_format: OutputFormat = Format.TEXT,
    ) -> None:
        """Measure a draft against its target alone: exact output lengths, raw rows, and a summary that `bench analyze DIR` computes again bit for bit."""
        from speculators_convert import api
        from speculators_convert.results.bench import BenchOptions

        if len(references) == 2 and references[0] == "analyze":
            output.demand_outside(Path(references[1]), html, png)
            output.bench(api.bench_analyze(Path(references[1])), output_format, html, png)
            return
        if len(references) != 1 or references == ["analyze"]:
            raise UsageError("bench takes one draft, or the word analyze and a folder", measured=" ".join(references), expected="bench REF --out DIR, or bench analyze DIR")
        if out is None:
            raise UsageError("a run needs a folder for its rows", where="--out", expected="--out DIR")
        options = checked(
            BenchOptions,
            target=target, engine=engine, workload=workload, topic_limit=topic_limit, output_tokens=output_tokens, concurrency=tuple(concurrency or [1]), repeats=repeats,
            warm_up=warm_up, also=tuple(_named(text) for text in also or ()), stock=tuple(stock or ()), side_by_side=side_by_side, mode=mode, tp=tp, dtype=dtype, device=device,
            attention_backend=attention, draft_attention_backend=draft_attention, server_words=tuple(server_words or ()), timeout_seconds=timeout, budget_seconds=budget,
        )  # fmt: skip
        output.demand_place(html, png)
        output.demand_outside(out, html, png)
        with ended_by_signals(), output.progress() as progress:
            report = api.bench(references[0], out, options=options, settings=parse_settings(settings), progress=progress)
        output.bench(report, output_format, html, png)


def _named(text: str) -> tuple[str, str]:
    name, equals, reference = text.partition("=")
    if not equals or not name or not reference:
        raise UsageError("--also takes NAME=REF", where=text, expected="for example dense=drafts/dense")
    return name, reference
