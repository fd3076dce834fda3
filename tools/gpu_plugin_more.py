"""Evidence for the plugin's second half on one GPU: packed verification (text, images, hybrid targets) and flushes beside captured graphs.

    python3 tools/gpu_plugin_more.py --out more.jsonl --budget 280      # again until it says that nothing is left
    python3 tools/gpu_plugin_more.py --out more.jsonl --report          # the claims, from the raw rows

One line of the file is one slice: versions, GPU, commit, command, raw rows. Slices that the file has are not run again.
Needs stock SGLang 0.5.23 in the running Python. `--device cpu` tries the eager slices over the CPU stand-in of tests/sglang.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_plugin import ROOT, append, surroundings

sys.path[:0] = [str(ROOT / "tests/sglang"), str(ROOT / "src")]

from gpu.claims import acceptance  # noqa: E402
from gpu.prompts import prompts  # noqa: E402
from gpu.requests import cost_table, requests_of, scheduled  # noqa: E402
from gpu.runs import FAILURES, failed, read_lines  # noqa: E402
from gpu.site import make_site  # noqa: E402
from sglang_harness.environment import TRAINED  # noqa: E402
from sglang_harness.server import Server, free_port, launch, tail  # noqa: E402

MULTIMODAL = ROOT / "fixtures/multimodal"
SECONDS_PER_SLICE, SHORTEST = 300, 70
"""Seconds that a slice may take, and that must be left for one to start."""
TOKENS, TOGETHER = 48, 8
ROUNDS = 50
SAME, FLUSH_SAME = 0.9, 0.97
"""Share of requests with equal tokens from which two runs, or the rounds of one, count as alike: bfloat16 has ties."""


@dataclass(frozen=True)
class Slice:
    """One server. `family`: text, vl or hybrid; `mode`: of ragged verification."""

    family: str
    mode: str
    graph: bool
    plugin: bool = True

    @property
    def name(self) -> str:
        """For example vl.compact.graph, or stock.hybrid.compact.eager."""
        return f"{'' if self.plugin else 'stock.'}{self.family}.{self.mode}.{'graph' if self.graph else 'eager'}"

    @property
    def target(self) -> Path:
        """Folder of the target."""
        return TRAINED / "tiny-target" if self.family == "text" else MULTIMODAL / f"{self.family}-target"

    @property
    def draft(self) -> Path:
        """Folder of the draft: with a trained confidence head for text, with a constructed one otherwise."""
        return TRAINED / "tiny-anchor-reduced-gated" if self.family == "text" else MULTIMODAL / f"{self.family}-draft"


def slices(device: str) -> list[Slice]:
    """All of them, the most telling ones first; a CPU captures nothing. Stock SGLang does not start with a dense Qwen3-VL target."""
    packed = [Slice(family, "compact", graph) for graph in (True, False) for family in ("vl", "hybrid", "text")]
    plain = [Slice(family, "static", graph) for graph in (True, False) for family in ("vl", "hybrid", "text")]
    capped = [Slice("text", "cap-accept", graph) for graph in (True, False)]
    stock = Slice("hybrid", "compact", graph=False, plugin=False)
    return [item for item in (*packed, *plain[:3], stock, *capped, *plain[3:]) if device != "cpu" or not item.graph]


def command(item: Slice, draft: Path, table: Path, device: str) -> list[str]:
    """The server's command line without its ports."""
    words = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(item.target), "--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", str(draft)]
    words += [
        "--max-total-tokens",
        "16384",
        "--max-running-requests",
        str(TOGETHER),
        "--disable-radix-cache",
        "--random-seed",
        "1",
        "--skip-server-warmup",
        "--sampling-backend",
        "pytorch",
    ]
    words += ["--decode-log-interval", "4"]
    if device == "cpu":
        words += ["--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--mem-fraction-static", "0.5"]
    else:
        words += ["--attention-backend", "fa3", "--speculative-draft-attention-backend", "fa3", "--mem-fraction-static", "0.85"]
        words += ["--cuda-graph-max-bs-decode", str(TOGETHER), "--cuda-graph-backend-prefill", "disabled"] if item.graph else ["--disable-cuda-graph"]
    if item.family == "hybrid":
        words += ["--disable-overlap-schedule", "--page-size", "1", "--linear-attn-backend", "triton", "--linear-attn-prefill-backend", "triton", "--max-mamba-cache-size", "64"]
    if item.mode != "static":
        words += ["--speculative-dspark-sps-table-path", str(table)]
    return words


def environment(site: Path, device: str, *, plugin: bool, mode: str) -> dict[str, str]:
    """Environment of a server; the log then says how many tokens each request verifies."""
    kept = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", "SGLANG_RAGGED_VERIFY_MODE": mode, "SGLANG_DSPARK_DEBUG_CONFIDENCE_PREFIX_SCHEDULER": "1"}
    names = (["speculators_dspark"] if plugin else []) + (["cpu_stand_in"] if device == "cpu" else [])
    kept["SGLANG_PLUGINS"] = ",".join(names) or "none"
    if device == "cpu":
        kept |= {
            "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_CPU_OMP_THREADS_BIND": "0",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRITON_INTERPRET": "1",
            "SGLANG_MAMBA_CONV_DTYPE": "float32",
        }
    return kept


def ask(server: Server, request: dict[str, Any], tokens: int = TOKENS, **sampling: float) -> dict[str, Any]:
    """One completion: tokens, verify steps, accepted drafts, prompt tokens."""
    body = {**request, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}}
    answer: Any = server.post("/generate", body, timeout=120)
    meta = answer["meta_info"]
    return {"output_ids": answer["output_ids"], "verify_steps": meta["spec_verify_ct"], "accepted": meta["spec_num_correct_drafts"], "prompt_tokens": meta["prompt_tokens"]}


def together(server: Server, requests: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The same requests from eight threads; images and text mix in a batch."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda item: ask(server, item, **options), requests))


def serve_slice(item: Slice, folder: Path, site: Path, device: str, *, seconds: float, ready: Callable[[], object]) -> dict[str, Any]:
    """Start the server, call `ready`, ask alone and together; what breaks on the way is part of the rows. Killed after `seconds`."""
    folder.mkdir(parents=True)
    draft = item.draft if item.plugin else native_folder(item.draft, folder / "native")
    words, port, began, log = command(item, draft, cost_table(folder / "sps.json"), device), free_port(), time.monotonic(), folder / "log"
    own, rows, broken = environment(site, device, plugin=item.plugin, mode=item.mode), dict[str, Any](), ""
    try:
        with launch([*words, "--port", str(port), "--nccl-port", str(free_port())], port, own, log, start_seconds=seconds, seconds=seconds) as server:
            started, asked = time.monotonic() - began, requests_of(item.family)[: 6 if device == "cpu" else None]
            ready()
            try:
                rows["alone"] = [ask(server, request) for request in asked]
                rows["together"] = together(server, asked)
            except FAILURES as error:
                broken = f"{type(error).__name__}: {error}"
    except FAILURES as error:
        return failed(item.name, item.draft.name, f"{time.monotonic() - began:.0f} s of {seconds:.0f}: {type(error).__name__}: {error}\n{tail(log) if log.exists() else ''}")
    said = log.read_text(errors="replace")
    return {
        "kind": "server", "name": item.name, "family": item.family, "mode": item.mode, "command": words, "start_seconds": round(started, 1), "rows": rows, "broken": broken,
        "errors": failures(said) if broken else [], "scheduled": scheduled(said), "graph_steps": len(re.findall(r"cuda graph: True", said)),
        "eager_steps": len(re.findall(r"cuda graph: False", said)), "seconds": round(time.monotonic() - began, 1),
        "log": [line for line in said.splitlines() if "DSpark ragged" in line or "hook(s)" in line],
    }  # fmt: skip


def native_folder(draft: Path, folder: Path) -> Path:
    """What stock SGLang reads without the plugin."""
    from speculators_convert import api  # noqa: PLC0415

    api.normalize(str(draft), folder, layout="sglang")
    return folder


def failures(log: str) -> list[str]:
    """The errors that a log names, each once."""
    return list(dict.fromkeys(re.findall(r"^(?:\[.*?\] )?(\w*(?:Error|Exception)\b.*)$", log, re.MULTILINE)))[-5:]


# Flushes beside captured graphs: stock and plugin side by side, device memory nearly full.


def flush_slice(folder: Path, site: Path, device: str, seconds: float, ready: Callable[[], object], alone: threading.Event) -> list[dict[str, Any]]:
    """Both servers, `ready`; when they are `alone`, the same rounds beside a process that holds almost all of the device's other memory."""
    folder.mkdir(parents=True)
    draft = TRAINED / "tiny-anchor-full-vanilla"
    native = native_folder(draft, folder / "native")
    with ThreadPoolExecutor(2) as pool:
        servers = [pool.submit(_flush_server, folder / name, site, device, native if name == "stock" else draft, seconds) for name in ("stock", "plugin")]
        waiting = [folder / name / "ready" for name in ("stock", "plugin")]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(path.exists() for path in waiting) and not any(item.done() for item in servers):
            time.sleep(0.2)
        ready()
        alone.wait(max(0, deadline - time.monotonic()))
        with memory_holder(folder, device) as free:
            (folder / "go").touch()
            return [{**item.result(), "free_bytes": free} for item in servers]


def _flush_server(folder: Path, site: Path, device: str, draft: Path, seconds: float) -> dict[str, Any]:
    folder.mkdir(parents=True)
    name = folder.name
    item = Slice("text", "static", graph=device != "cpu", plugin=name == "plugin")
    words, port = command(item, draft, folder / "none", device), free_port()
    environ = environment(site, device, plugin=item.plugin, mode="static")
    line: dict[str, Any] = {"kind": "flush", "name": f"flush.{name}", "command": words, "rounds": [], "broken": "", "errors": []}
    try:
        with launch([*words, "--port", str(port), "--nccl-port", str(free_port())], port, environ, folder / "log", start_seconds=seconds, seconds=seconds) as server:
            load = flush_load()
            _round(server, load)
            (folder / "ready").touch()
            deadline = time.monotonic() + seconds
            while not (folder.parent / "go").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            for number in range(ROUNDS if device != "cpu" else 3):
                line["rounds"].append(_round(server, load, size=1 + number % TOGETHER))
    except FAILURES as error:
        line["broken"] = f"{type(error).__name__}: {error}"[-4000:]
    finally:
        (folder / "ready").touch()
    log = (folder / "log").read_text(errors="replace")
    if not line["rounds"]:
        return failed(line["name"], draft.name, f"{line['broken']}\n{tail(folder / 'log')}")
    line["errors"], line["flushes"] = failures(log) if line["broken"] else [], log.count("Cache flushed successfully")
    return line


def flush_load() -> list[dict[str, Any]]:
    """Prompts of up to 420 tokens, so that prefills ask the allocator for blocks of many sizes."""
    joined = [token for prompt in prompts() for token in prompt]
    return [{"input_ids": joined[start * 100 : start * 100 + 60 + 45 * start]} for start in range(TOGETHER)]


def _round(server: Server, load: list[dict[str, Any]], size: int = TOGETHER) -> dict[str, Any]:
    """`size` requests at once, sampled ones beside them, then a flush while nothing runs."""
    tokens = 24
    with ThreadPoolExecutor(2 * TOGETHER) as pool:
        greedy = [pool.submit(ask, server, item, tokens) for item in load[:size]]
        sampled = [pool.submit(ask, server, item, tokens, temperature=1.0) for item in load[size:]]
        answers = [item.result()["output_ids"] for item in greedy]
        for item in sampled:
            item.result()
    return {"size": size, "tokens": answers, "flushed": flush(server)}


def flush(server: Server) -> bool:
    """POST /flush_cache until the server is idle enough to do it; false after two seconds."""
    for _ in range(40):
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/flush_cache", b"", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                if response.status == 200:
                    return True
        except urllib.error.HTTPError:
            time.sleep(0.05)
    return False


@contextmanager
def memory_holder(folder: Path, device: str) -> Iterator[int | None]:
    """Hold the device's memory but 768 MiB in a process of its own; yields what is left free."""
    if device == "cpu":
        yield None
        return
    script = (
        "import sys, time, torch\nkeep = []\nsize = 1 << 28\n"
        "while torch.cuda.mem_get_info()[0] > (768 << 20) + size: keep.append(torch.empty(size, dtype=torch.uint8, device='cuda').fill_(255))\n"
        "print(torch.cuda.mem_get_info()[0], flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(folder / "holder.log").open("wb"), text=True)
    try:
        said = process.stdout.readline() if process.stdout else ""
        yield int(said) if said.strip().isdigit() else None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)


def run(out: Path, *, budget: float, only: str, parallel: int, commit: str, device: str) -> None:
    """Run what the file lacks while the budget lasts: `parallel` servers start at once, one that is ready makes room. Flushes come last, alone on the device."""
    stop, folder = time.monotonic() + budget, Path(tempfile.mkdtemp(prefix="gpu-plugin-more-"))
    site = make_site(folder / "site")
    if device == "cpu":
        _add_stand_in(site)
    starting, alone, left = threading.Semaphore(parallel), threading.Event(), lambda: min(SECONDS_PER_SLICE, stop - time.monotonic())

    def serve(item: Slice) -> dict[str, Any] | None:
        with ExitStack() as turn:
            turn.enter_context(starting)
            return serve_slice(item, folder / item.name, site, device, seconds=left(), ready=turn.close) if left() > SHORTEST else None

    def flushes() -> list[dict[str, Any]]:
        with ExitStack() as turn:
            turn.enter_context(starting)
            return flush_slice(folder / "flush", site, device, left(), turn.close, alone) if left() > SHORTEST else []

    with ThreadPoolExecutor(3 * parallel) as pool:
        around = pool.submit(lambda: {"commit": commit, "doctor": {}} if device == "cpu" else surroundings(site, commit))
        serving = [pool.submit(serve, item) for item in slices(device) if item.name in lacking(out, device, only)]
        flushing = [pool.submit(flushes)] if "flush.plugin" in lacking(out, device, only) else []
        try:
            for line in filter(None, (future.result() for future in as_completed(serving))):
                append(out, {**around.result(), **line})
        finally:
            alone.set()
        for line in (line for future in flushing for line in future.result()):
            append(out, {**around.result(), **line})
    print(f"left: {len(lacking(out, device, only))} {lacking(out, device, only)}")
    shutil.rmtree(folder, ignore_errors=True)


def lacking(out: Path, device: str, only: str) -> list[str]:
    """Slices that the file has not, or only as failed."""
    done = {line["name"] for line in read_lines(out) if line["kind"] != "failed"}
    return [name for name in [*(item.name for item in slices(device)), "flush.plugin"] if name not in done and re.search(only, name)]


def _add_stand_in(site: Path) -> None:
    """The CPU stand-in of the tests as one more plugin."""
    source = ROOT / "tests/sglang/stand_in"
    for name in ("cpu_stand_in", "sgl_kernel"):
        shutil.copytree(source / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    information = site / "spec_convert_cpu_stand_in-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: spec-convert-cpu-stand-in\nVersion: 0\n")
    (information / "entry_points.txt").write_text("[sglang.srt.plugins]\ncpu_stand_in = cpu_stand_in:register\n")


Claim = tuple[str, bool, str]


def report(lines: list[dict[str, Any]]) -> list[Claim]:
    """Claim, whether it holds, and the numbers."""
    by_name = {line["name"]: line for line in lines if line["kind"] != "failed"}
    lost = {line["name"]: line for line in lines if line["kind"] == "failed" and line["name"] not in by_name}
    claims: list[Claim] = [(f"{name} ran", False, line["error"].splitlines()[-1]) for name, line in lost.items()]
    for line in by_name.values():
        if line["kind"] == "server":
            claims += _stock_claims(line, by_name) if line["name"].startswith("stock.") else _server_claims(line, by_name)
        elif line["kind"] == "flush":
            claims += _flush_claims(line)
    return claims


def _server_claims(line: dict[str, Any], by_name: dict[str, dict[str, Any]]) -> list[Claim]:
    name, rows = line["name"], line["rows"]
    if line["broken"]:
        return [(f"{name} answered", False, "; ".join([line["broken"], *line["errors"]])[:400])]
    alone, batched = (acceptance(rows[key]) for key in ("alone", "together"))
    claims: list[Claim] = [_alike(f"{name}: eight at once give the tokens of one at a time", rows["together"], rows["alone"], f"{batched:.3f} and {alone:.3f} tokens per step")]
    if line["mode"] != "static":
        counts = line["scheduled"]
        claims.append(
            (
                f"{name}: requests of one batch verified different numbers of tokens",
                counts["differ"] > 0,
                f"in {counts['differ']} of {counts['several']} steps with several requests",
            )
        )
    if line["mode"] == "compact" and name.endswith(".graph"):
        claims.append((f"{name}: steps ran in graphs", line["graph_steps"] > line["eager_steps"], f"{line['graph_steps']} logged steps in graphs, {line['eager_steps']} outside"))
    return claims + list(_comparisons(line, by_name))


def _comparisons(line: dict[str, Any], by_name: dict[str, dict[str, Any]]) -> Iterator[Claim]:
    """Against static mode, and of a graph against eager."""
    name, family, mode = line["name"], line["family"], line["mode"]
    kind = name.rpartition(".")[2]
    others = [f"{family}.static.{kind}", f"{family}.static.{'eager' if kind == 'graph' else 'graph'}"] if mode != "static" else []
    static = next((by_name[other] for other in others if other in by_name and by_name[other]["kind"] == "server"), None)
    if static and not static["broken"]:
        left, right = acceptance(line["rows"]["together"]), acceptance(static["rows"]["together"])
        yield _alike(
            f"{name}: the tokens of {static['name']}", line["rows"]["together"], static["rows"]["together"], f"{left:.3f} tokens per step, {right:.3f} with all slots verified"
        )
    eager = by_name.get(f"{family}.{mode}.eager")
    if kind == "graph" and eager and not eager["broken"]:
        yield _alike(f"{name}: graph gives eager's tokens", line["rows"]["alone"], eager["rows"]["alone"], "one at a time")


def _stock_claims(line: dict[str, Any], by_name: dict[str, dict[str, Any]]) -> list[Claim]:
    """What happens without the plugin."""
    name, ours = line["name"], by_name.get(line["name"].removeprefix("stock."))
    if line["broken"]:
        return [(f"{name}: stock fails, the defect that the plugin mends", True, "; ".join([line["broken"], *line["errors"]])[:300])]
    if not ours or ours["broken"]:
        return []
    same = equal(line["rows"]["together"], ours["rows"]["together"])
    return [(f"{name}: stock's tokens differ, the defect that the plugin mends", same < SAME, f"{same:.0%} of requests equal the plugin's")]


def _flush_claims(line: dict[str, Any]) -> list[Claim]:
    name, rounds = line["name"], line["rounds"]
    first: dict[tuple[int, int], list[int]] = {}
    total = same = 0
    for item in rounds:
        for row, tokens in enumerate(item["tokens"]):
            reference = first.setdefault((item["size"], row), tokens)
            total, same = total + 1, same + (tokens == reference)
    free = f", {line['free_bytes'] >> 20} MiB of the device free" if line.get("free_bytes") else ""
    numbers = f"{len(rounds)} rounds, {line.get('flushes', 0)} flushes, {same}/{total} greedy answers as in the first round of their batch size{free}"
    ended = f"; {line['broken']}; {line['errors']}"[:300] if line["broken"] else ""
    whole = not ended and len(rounds) >= ROUNDS and line.get("flushes", 0) >= ROUNDS
    alike = total > 0 and same / total >= FLUSH_SAME
    if name == "flush.stock":
        outcome = "it ended" if ended else "no fault" if whole and alike else "other tokens, or not all rounds"
        return [(f"{name}: recorded for comparison, {outcome}", True, numbers + ended)]
    return [(f"{name}: no fault, and at least {FLUSH_SAME:.0%} the same tokens", whole and alike, numbers + ended)]


def _alike(claim: str, left: list[dict[str, Any]], right: list[dict[str, Any]], also: str) -> Claim:
    share = equal(left, right)
    return claim, share >= SAME, f"{round(share * len(left))}/{len(left)} requests, {also}"


def equal(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> float:
    """Share of requests with the same tokens."""
    return statistics.fmean(a["output_ids"] == b["output_ids"] for a, b in zip(left, right, strict=True))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=280, help="seconds; a group of slices that might not fit is left for the next call")
    parser.add_argument("--only", default="", help="regular expression over slice names")
    parser.add_argument("--parallel", type=int, default=8, help="servers side by side on one GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        claims = report(read_lines(options.out))
        print("\n".join(f"{'holds' if holds else 'FAILS'}  {claim}: {numbers}" for claim, holds, numbers in claims))
        sys.exit(0 if claims and all(holds for _, holds, _ in claims) else 1)
    commit = options.commit or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    run(options.out, budget=options.budget, only=options.only, parallel=options.parallel, commit=commit, device=options.device)


if __name__ == "__main__":
    main()
