"""One server per GPU at the same time: a draft through the plugin on the first, its dense rewrite on stock SGLang on the second.

    python tools/gpu_two_servers.py --out two-servers.json

Both get the trained fixture's prompts at once, twice. The file holds commands, ports, answers, device memory and processes before, while and after;
the claims at its end are computed from them. Needs two GPUs, SGLang 0.5.23 and this package in the running Python.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from speculators_convert import api
from speculators_convert.serving import devices, guard
from speculators_convert.serving.config import PLUGIN_NAME, PLUGIN_VARIABLE, ServerConfig
from speculators_convert.serving.process import running
from speculators_convert.serving.versions import installed

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/sglang")]

from gpu.claims import acceptance  # noqa: E402
from gpu.memory import SLACK_BYTES, settled, used  # noqa: E402

TRAINED = ROOT / "fixtures" / "trained"
DRAFT, TARGET = TRAINED / "tiny-bonus-reduced-vanilla", TRAINED / "tiny-target"
TOKENS, TIMEOUT_SECONDS = 64, 300.0
SETTLE_SECONDS = 15
CLOSE = 0.05
"""How far apart the acceptance lengths may lie: both decode in bfloat16, in batches of different shapes."""


def main() -> int:
    """Run and write; 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda", help="cpu tries the command where there is no GPU")
    options = parser.parse_args()
    gpus = devices.gpus()
    if options.device != "cpu" and len(gpus) < 2:
        raise SystemExit(f"{len(gpus)} GPU, two are needed")
    prompts = [json.loads(line)["input_ids"] for line in (TRAINED / "prompts.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        api.normalize(str(DRAFT), folder / "dense", layout="sglang-dense", target=str(TARGET))
        configs = (_config("plugin", DRAFT, 0, PLUGIN_NAME, options.device), _config("stock", folder / "dense", 1, "none", options.device))
        before, met = used(), threading.Barrier(2, timeout=TIMEOUT_SECONDS)
        with ThreadPoolExecutor(2) as pool:
            servers = list(pool.map(lambda config: _serve(config, folder, prompts, met), configs))
    found = {"versions": installed(("sglang", "torch", "speculators-convert")), "gpus": [gpu.name for gpu in gpus], "servers": servers, "memory_before": before}
    found |= {"memory_after": settled(before, SETTLE_SECONDS), "processes_after": sum(len(guard.marked(server["mark"])) for server in servers)}
    found["claims"] = [{"claim": claim, "holds": holds, "measured": measured} for claim, holds, measured in claims(found)]
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(f"{'holds' if item['holds'] else 'FAILS'}  {item['claim']}: {item['measured']}" for item in found["claims"]))
    return int(not all(item["holds"] for item in found["claims"]))


def _config(name: str, draft: Path, gpu: int, plugins: str, device: str) -> ServerConfig:
    cpu = device == "cpu"
    environment = {PLUGIN_VARIABLE: f"{plugins},cpu_stand_in" if cpu else plugins}
    return ServerConfig(
        name=name, role="drafted", target=str(TARGET), draft=str(draft), mode="eager" if cpu else "graph", device=device, gpus=None if cpu else (gpu,),
        dtype="float32" if cpu else "bfloat16", attention_backend="torch_native" if cpu else "triton", draft_attention_backend="torch_native" if cpu else "triton",
        memory_fraction=0.5 if cpu else 0.8, environment=environment,
    )  # fmt: skip


def _serve(config: ServerConfig, folder: Path, prompts: list[list[int]], met: threading.Barrier) -> dict[str, Any]:
    """One server: it is asked when both answer, and ended when both were asked."""
    try:
        with running(config, folder / f"{config.name}.log", timeout=TIMEOUT_SECONDS) as server:
            met.wait()
            began = time.time()
            answers = [answer for _ in range(2) for answer in server.client.generate(prompts, tokens=TOKENS)]
            asked = [began, time.time()]
            processes, held = sorted(guard.marked(server.mark)), server.held_bytes()
            met.wait()
            return {
                "name": config.name, "command": list(server.command), "variables": server.variables, "mark": server.mark, "start_seconds": round(server.start_seconds, 1),
                "asked": asked, "processes": len(processes), "device_bytes": held, "answers": [answer.model_dump(mode="json") for answer in answers],
            }  # fmt: skip
    except BaseException:
        met.abort()
        raise


def claims(found: Mapping[str, Any]) -> list[tuple[str, bool, str]]:
    """What the raw values support."""
    left, right = found["servers"]
    ports = [{word for flag, word in zip(server["command"], server["command"][1:], strict=False) if flag in ("--port", "--nccl-port")} for server in (left, right)]
    same = sum(one["output_ids"] == other["output_ids"] for one, other in zip(left["answers"], right["answers"], strict=True))
    lengths = [acceptance(server["answers"]) for server in (left, right)]
    overlap = min(left["asked"][1], right["asked"][1]) - max(left["asked"][0], right["asked"][0])
    seen, kept = [server["variables"].get("CUDA_VISIBLE_DEVICES") for server in (left, right)], [left["processes"], right["processes"]]
    grown = max((after - before for before, after in zip(found["memory_before"], found["memory_after"], strict=True)), default=0)
    return [
        ("both were asked at the same time", overlap > 0, f"{overlap:.2f} s"),
        ("no port in common", not ports[0] & ports[1], f"{sorted(ports[0])} and {sorted(ports[1])}"),
        ("each had a GPU of its own", seen[0] != seen[1], f"{seen[0]} and {seen[1]}"),
        ("both accept alike", abs(lengths[0] - lengths[1]) < CLOSE, f"{lengths[0]:.3f} and {lengths[1]:.3f}; {same}/{len(left['answers'])} answers token for token"),
        ("every process ended", found["processes_after"] == 0 and min(kept) > 1, f"{kept} while serving, {found['processes_after']} after"),
        ("no device memory is held", grown <= SLACK_BYTES, f"{grown >> 20} MiB more than before"),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
