"""Evidence for the SGLang plugin on a GPU host: servers in each mode, their answers and drafted blocks, and the reference engine beside them.

    python3 tools/gpu_plugin.py --out evidence.jsonl --budget 420      # again until it says that nothing is left
    python3 tools/gpu_plugin.py --out evidence.jsonl --report          # the claims, from the raw rows

One line of the file is one slice: versions, GPU, commit, command, raw rows. Slices that the file has are not run again.
Needs stock SGLang 0.5.23 in the running Python; the project needs no installation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/sglang"), str(ROOT / "src")]

from gpu.prompts import prompts  # noqa: E402
from gpu.site import make_site  # noqa: E402
from sglang_harness.environment import TRAINED  # noqa: E402
from sglang_harness.server import Answer, free_port, launch  # noqa: E402

FIXTURES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal")
SECONDS_PER_SLICE, SECONDS_PER_REFERENCE = 240, 60
TOKENS, SAMPLED = 64, 20
AGREEMENT = 0.97
STOCK_FLASH = "stock-dense.graph.fa3"
"""The bonus-anchor draft, rewritten over the whole vocabulary, on stock SGLang's FA3 draft back end: the width defect before the plugin's fix."""


@dataclass(frozen=True)
class Slice:
    """One server, or one run of the reference engine."""

    name: str
    draft: str
    graph: bool = False
    attention: str = "triton"
    target: str = "bf16"
    plugin: bool = True
    tp: int = 1


def slices() -> list[Slice]:
    """All of them, the most telling ones first."""
    both = [Slice(f"{draft}.{'graph' if graph else 'eager'}", draft, graph) for draft in FIXTURES for graph in (False, True)]
    flash = [Slice(f"{draft}.{'graph' if graph else 'eager'}.fa3", draft, graph, "fa3") for draft in FIXTURES[1:3] for graph in (False, True)]
    quantized = [Slice(f"{draft}.graph.{target}", draft, graph=True, target=target) for target, draft in (("fp8", FIXTURES[1]), ("packed", FIXTURES[2]))]
    stock = [Slice("stock.graph", FIXTURES[0], graph=True, plugin=False), Slice(STOCK_FLASH, FIXTURES[1], graph=True, attention="fa3", plugin=False)]
    return [*both, *flash, *stock, *quantized]


def command(item: Slice, target: Path, draft: Path) -> list[str]:
    """The server's command line without its ports."""
    graph = ["--cuda-graph-max-bs-decode", "8"] if item.graph else ["--disable-cuda-graph"]
    return [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(target), "--attention-backend", item.attention, "--sampling-backend", "pytorch",
        "--mem-fraction-static", "0.6", "--max-total-tokens", "8192", "--max-running-requests", "8", "--disable-radix-cache", "--disable-custom-all-reduce",
        "--random-seed", "1", "--tp-size", str(item.tp), "--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", str(draft),
        "--speculative-draft-attention-backend", item.attention, *graph,
    ]  # fmt: skip


def serve_slice(item: Slice, folder: Path, site: Path) -> dict[str, Any]:
    """Start the server, ask, and return the raw rows."""
    folder.mkdir(parents=True)
    target, draft = TRAINED / "tiny-target", TRAINED / item.draft
    if item.target != "bf16":
        from gpu.quantized_target import make_target  # noqa: PLC0415

        target = make_target(item.target, folder / "target")
    if not item.plugin:
        draft = _native_folder(draft, folder / "native")
    record = folder / "blocks.jsonl"
    plugins = "speculators_dspark,draft_recorder" if item.plugin else "draft_recorder"
    environ = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", "SGLANG_PLUGINS": plugins, "DRAFT_RECORD": str(record)}
    words, port = command(item, target, draft), free_port()
    started = time.time()
    with launch([*words, "--port", str(port), "--nccl-port", str(free_port())], port, environ, folder / "log", start_seconds=SECONDS_PER_SLICE) as server:
        ready = time.time() - started
        inputs = prompts()
        rows = {
            "greedy": [row for prompt in inputs for row in server.generate([prompt], tokens=TOKENS)],
            "greedy batched": server.generate(inputs, tokens=TOKENS),
            "sampled cold": server.generate(inputs[:SAMPLED], tokens=TOKENS, temperature=1e-3),
            "sampled": server.generate(inputs[:SAMPLED], tokens=TOKENS, temperature=1.0),
        }
        log = [line for line in server.log.read_text(errors="replace").splitlines() if "DSpark" in line or "hook(s)" in line]
    blocks = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return {
        "kind": "server", "name": item.name, "draft": item.draft, "command": words, "plugins": plugins, "start_seconds": round(ready, 1), "log": log,
        "rows": {name: [_row(answer) for answer in answers] for name, answers in rows.items()}, "blocks": blocks,
    }  # fmt: skip


def reference_slice(draft: str, device: str, dtype: str) -> dict[str, Any]:
    """Acceptance of the reference engine over the same prompts."""
    from gpu.agreement import accept, engine  # noqa: PLC0415

    parts = engine(draft, device, dtype)
    return {"kind": "reference", "name": f"{draft}.reference", "draft": draft, "dtype": dtype, "accepted": accept(*parts, prompts(), TOKENS)}


def agreement_slice(server: dict[str, Any], device: str, dtype: str) -> dict[str, Any]:
    """Slot by slot: what the reference engine drafts after the very tokens that the server had."""
    from gpu.agreement import compare_blocks, engine  # noqa: PLC0415

    draft, target = engine(server["draft"], device, dtype)
    inputs, blocks = prompts(), {}
    for block in server["blocks"]:
        blocks.setdefault(block["request"], []).append(block)
    rows = []
    for prompt, answer in zip(inputs, server["rows"]["greedy"], strict=True):
        rows.append(compare_blocks(draft, target, [*prompt, *answer["output_ids"]], blocks[answer["request"]]))
    return {"kind": "agreement", "name": f"{server['name']}.agreement", "draft": server["draft"], "dtype": dtype, "rows": rows}


def surroundings(site: Path, commit: str) -> dict[str, Any]:
    """Versions, GPU, entry points and live hooks, as `doctor` sees them here."""
    environ = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", "SGLANG_PLUGINS": "speculators_dspark,draft_recorder"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "speculators_convert.sglang_plugin.doctor"], env=environ, capture_output=True, text=True, check=True)
    return {"commit": commit, "doctor": json.loads(done.stdout[done.stdout.index("{") :])}


def run(out: Path, *, budget: float, only: str, parallel: int, commit: str, device: str, dtype: str) -> None:
    """Run what the file lacks while the budget lasts."""
    stop, done = time.monotonic() + budget, {line["name"]: line for line in read(out)}
    folder = Path(tempfile.mkdtemp(prefix="gpu-plugin-"))
    site = make_site(folder / "site")
    around = surroundings(site, commit)
    pending = [item for item in slices() if item.name not in done and re.search(only, item.name)]
    with ThreadPoolExecutor(parallel) as pool:
        for first in range(0, len(pending), parallel):
            if time.monotonic() + SECONDS_PER_SLICE > stop and first:
                break
            group = pending[first : first + parallel]
            for result in pool.map(lambda item: _attempt(item, folder, site), group):
                append(out, {**around, **result})
                done[result["name"]] = result
    work = _reference_work(done, only, device, dtype)
    with ProcessPoolExecutor(parallel, mp_context=get_context("spawn")) as pool:
        for first in range(0, len(work), parallel):
            if time.monotonic() + SECONDS_PER_REFERENCE > stop:
                break
            for result in pool.map(_do, work[first : first + parallel]):
                append(out, {**around, **result})
    left = [item.name for item in slices() if item.name not in {line["name"] for line in read(out)} and re.search(only, item.name)]
    print(f"left: {len(left)} servers {left}, {len(_reference_work({line['name']: line for line in read(out)}, only, device, dtype))} runs of the reference engine")


def _reference_work(done: dict[str, dict[str, Any]], only: str, device: str, dtype: str) -> list[tuple[Any, ...]]:
    """Function and arguments of each run of the reference engine that is not done."""
    work: list[tuple[Any, ...]] = [(reference_slice, draft, device, dtype) for draft in FIXTURES if f"{draft}.reference" not in done and re.search(only, draft)]
    servers = [line for line in done.values() if line["kind"] == "server" and _plain_target(line)]
    return work + [(agreement_slice, line, device, dtype) for line in servers if f"{line['name']}.agreement" not in done]


def _do(work: tuple[Any, ...]) -> dict[str, Any]:
    """One run of the reference engine, in a process of its own: its decoding is bound by Python."""
    function, *arguments = work
    result: dict[str, Any] = function(*arguments)
    return result


def _plain_target(line: dict[str, Any]) -> bool:
    """Served with the target that the reference engine loads too."""
    return line["command"][line["command"].index("--model-path") + 1].endswith("tiny-target")


def _attempt(item: Slice, folder: Path, site: Path) -> dict[str, Any]:
    """The slice, or the reason why it did not run; a failure is evidence too."""
    try:
        return serve_slice(item, folder / item.name, site)
    except (AssertionError, OSError) as error:
        return {"kind": "failed", "name": item.name, "draft": item.draft, "error": str(error)[-6000:]}


def report(lines: list[dict[str, Any]]) -> list[tuple[str, bool, str]]:
    """Claim, whether it holds, and the numbers."""
    by_name, claims = {line["name"]: line for line in lines}, []
    claims += [(f"{line['name']} ran", False, line["error"].splitlines()[-1]) for line in lines if line["kind"] == "failed"]
    for line in lines:
        if line["kind"] == "agreement":
            agreed, total = (sum(column) for column in zip(*line["rows"], strict=True))
            numbers = f"{agreed}/{total} = {agreed / total:.2%}, at least {AGREEMENT:.0%}"
            claims.append((f"{line['name']}: slots agree with the reference engine", agreed / total >= AGREEMENT, numbers))
        elif line["kind"] == "server":
            claims += _server_claims(line, by_name)
    return claims


def _server_claims(line: dict[str, Any], by_name: dict[str, dict[str, Any]]) -> list[tuple[str, bool, str]]:
    claims, name = [], line["name"]
    eager = by_name.get(name.replace(".graph", ".eager"))
    if ".graph" in name and eager and eager["kind"] == "server":
        same = sum(left["output_ids"] == right["output_ids"] for left, right in zip(line["rows"]["greedy"], eager["rows"]["greedy"], strict=True))
        claims.append((f"{name}: graph gives eager's tokens", same == len(line["rows"]["greedy"]), f"{same}/{len(line['rows']['greedy'])} prompts"))
    alone, together = (acceptance(line["rows"][key]) for key in ("greedy", "greedy batched"))
    numbers = f"{alone:.3f} alone, {together:.3f} eight at once"
    if name == STOCK_FLASH:
        return [*claims, (f"{name}: stock loses acceptance at concurrency 8, the defect that the plugin mends", alone - together > 0.3, numbers)]
    claims.append((f"{name}: acceptance does not depend on concurrency", abs(alone - together) < 0.05, numbers))
    reference = by_name.get(f"{line['draft']}.reference")
    if reference and _plain_target(line):
        low, high = paired_interval([_mean(row) for row in line["rows"]["greedy"]], [sum(item) / len(item) + 1 for item in reference["accepted"]])
        numbers = f"95% interval of the paired difference [{low:.3f}, {high:.3f}] over {len(reference['accepted'])} prompts"
        claims.append((f"{name}: acceptance is the reference engine's", low <= 0 <= high, numbers))
    if name == "stock.graph" and (ours := by_name.get(f"{FIXTURES[0]}.graph")):
        same = line["rows"]["greedy"] and [row["output_ids"] for row in line["rows"]["greedy"]] == [row["output_ids"] for row in ours["rows"]["greedy"]]
        claims.append(("full vocabulary: the plugin changes nothing", bool(same), "all tokens equal stock's" if same else "tokens differ"))
    return claims


def paired_interval(left: list[float], right: list[float]) -> tuple[float, float]:
    """95% bootstrap interval of the mean difference, prompts resampled in pairs."""
    differences, generator = [a - b for a, b in zip(left, right, strict=True)], random.Random(7)  # noqa: S311
    means = sorted(statistics.fmean(generator.choices(differences, k=len(differences))) for _ in range(10_000))
    return means[249], means[9749]


def acceptance(rows: list[dict[str, Any]]) -> float:
    """Accepted plus bonus tokens over verify steps."""
    return sum(row["accepted"] + row["verify_steps"] for row in rows) / sum(row["verify_steps"] for row in rows)


def _mean(row: dict[str, Any]) -> float:
    return acceptance([row])


def _row(answer: Answer) -> dict[str, Any]:
    return {"request": answer.request, "output_ids": answer.output_ids, "verify_steps": answer.verify_steps, "accepted": answer.accepted}


def _native_folder(draft: Path, folder: Path) -> Path:
    """What stock SGLang reads without the plugin: over the whole vocabulary."""
    from speculators_convert import api  # noqa: PLC0415

    spec = api.look(str(draft)).spec
    api.normalize(str(draft), folder, layout="sglang-dense" if spec.reduced_vocabulary else "sglang", target=str(TRAINED / "tiny-target"))
    return folder


def read(out: Path) -> list[dict[str, Any]]:
    """Lines of the evidence file."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def append(out: Path, line: dict[str, Any]) -> None:
    """One more line, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")
    print(f"{line['kind']} {line['name']}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=420, help="seconds; a slice that might not fit is left for the next call")
    parser.add_argument("--only", default="", help="regular expression over slice names")
    parser.add_argument("--parallel", type=int, default=6, help="servers, or runs of the reference engine, side by side on one GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        claims = report(read(options.out))
        print("\n".join(f"{'holds' if holds else 'FAILS'}  {claim}: {numbers}" for claim, holds, numbers in claims))
        sys.exit(0 if claims and all(holds for _, holds, _ in claims) else 1)
    commit = options.commit or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    run(options.out, budget=options.budget, only=options.only, parallel=options.parallel, commit=commit, device=options.device, dtype=options.dtype)


if __name__ == "__main__":
    main()
