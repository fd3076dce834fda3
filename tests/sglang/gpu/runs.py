"""One slice at a time: a server and its raw rows, or a run of the reference engine and its rows."""

import http.client
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gpu.plan import SAMPLED, TOKENS, Slice, command, environ
from gpu.prompts import prompts
from sglang_harness.environment import TRAINED
from sglang_harness.server import Answer, Server, free_port, launch, tail

Row = dict[str, Any]
TARGET = TRAINED / "tiny-target"
FAILURES = (AssertionError, OSError, http.client.HTTPException, ValueError, KeyError)
"""What a server that ends, is killed at its deadline, or answers nonsense shows here."""


def serve_slice(item: Slice, folder: Path, site: Path, *, gpus: tuple[int, ...], seconds: float, ready: Callable[[], object], asking: AbstractContextManager[object]) -> Row:
    """Start the server, call `ready`, ask while `asking` is held, and return the raw rows; the server is killed after `seconds`."""
    folder.mkdir(parents=True)
    record, log, began = folder / "blocks.jsonl", folder / "log", time.monotonic()
    words, port, own = command(item, _target(item, folder), _draft(item, folder)), free_port(), environ(item, site, gpus)
    try:
        full = [*words, "--port", str(port), "--nccl-port", str(free_port())]
        with launch(full, port, {**own, "DRAFT_RECORD": str(record)}, log, start_seconds=seconds, seconds=seconds) as server:
            started = time.monotonic() - began
            ready()
            with asking:
                rows = _ask(server)
    except FAILURES as error:
        return failed(item.name, item.draft, f"{time.monotonic() - began:.0f} s of {seconds:.0f}: {type(error).__name__}: {error}\n{tail(log) if log.exists() else ''}")
    return {
        "kind": "server", "name": item.name, "draft": item.draft, "target": item.target, "command": words, "plugins": own["SGLANG_PLUGINS"],
        "start_seconds": round(started, 1), "seconds": round(time.monotonic() - began, 1),
        "log": [line for line in log.read_text(errors="replace").splitlines() if kept_line(line)],
        "rows": {name: [_row(answer) for answer in answers] for name, answers in rows.items()}, "blocks": read_lines(record),
    }  # fmt: skip


def kept_line(line: str) -> bool:
    """What a row keeps of its server's log: drafts, the rows that each rank read, hooks."""
    return "DSpark" in line or "hook(s)" in line


def engine_slice(name: str, done: dict[str, Row], device: str, dtype: str) -> Row:
    """A run of the reference engine: `<draft>.reference`, or `<server>.agreement` with a row of `done`."""
    from gpu.agreement import accept, engine  # noqa: PLC0415

    subject, _, kind = name.rpartition(".")
    if kind == "reference":
        draft, target = engine(subject, device, dtype)
        return {"kind": kind, "name": name, "draft": subject, "dtype": dtype, "accepted": accept(draft, target, prompts(), TOKENS)}
    server = done[subject]
    return {"kind": kind, "name": name, "draft": server["draft"], "dtype": dtype, "rows": agreement(server, *engine(server["draft"], device, dtype), prompts())}


def failed(name: str, draft: str, error: str) -> Row:
    """A failure is evidence too."""
    return {"kind": "failed", "name": name, "draft": draft, "error": error[-6000:]}


def read_lines(path: Path) -> list[Row]:
    """JSON lines; none when the file is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _ask(server: Server) -> dict[str, list[Answer]]:
    inputs = prompts()
    return {
        "greedy": [row for prompt in inputs for row in server.generate([prompt], tokens=TOKENS)],
        "greedy batched": server.generate(inputs, tokens=TOKENS),
        "sampled cold": server.generate(inputs[:SAMPLED], tokens=TOKENS, temperature=1e-3),
        "sampled": server.generate(inputs[:SAMPLED], tokens=TOKENS, temperature=1.0),
    }


def agreement(server: Row, draft: Any, target: Any, inputs: list[list[int]]) -> list[tuple[int, int]]:
    """Slots that agree and all slots, by prompt: what the reference engine drafts after the very tokens that the server had."""
    from gpu.agreement import compare_blocks  # noqa: PLC0415

    blocks: dict[str, list[Row]] = {}
    for block in server["blocks"]:
        blocks.setdefault(block["request"], []).append(block)
    answers = zip(inputs, server["rows"]["greedy"], strict=True)
    return [compare_blocks(draft, target, [*prompt, *answer["output_ids"]], blocks[answer["request"]]) for prompt, answer in answers]


def _target(item: Slice, folder: Path) -> Path:
    if item.target == "bf16":
        return TARGET
    from gpu.quantized_target import make_target  # noqa: PLC0415

    return make_target(item.target, folder / "target")


def _draft(item: Slice, folder: Path) -> Path:
    """The trained draft, or what `normalize` makes of it: rank files, or what stock SGLang reads without the plugin."""
    source = TRAINED / item.draft
    if item.plugin and not item.split:
        return source
    from speculators_convert import api  # noqa: PLC0415

    if item.split:
        api.normalize(str(source), folder / "draft", choices=api.RewriteChoices(layout="speculators", split=item.tp))
    else:
        api.normalize(str(source), folder / "draft", layout="sglang-dense" if api.look(str(source)).spec.reduced_vocabulary else "sglang", target=str(TARGET))
    return folder / "draft"


def _row(answer: Answer) -> Row:
    return {"request": answer.request, "output_ids": answer.output_ids, "verify_steps": answer.verify_steps, "accepted": answer.accepted}
