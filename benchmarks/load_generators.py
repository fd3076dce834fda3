"""The load generator of `bench` and SGLang's own bench client, in turns against one server, where both can measure the same thing: random token ids.

    python benchmarks/load_generators.py --target FOLDER [--device cpu] [--json FILE]      # in the Python that has SGLang

SGLang's client takes token ids for random prompts only, so both send random ids of one length; each round runs A, B, B, A.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [entry for entry in sys.path if not entry.endswith("benchmarks")]  # inspect.py there would hide the standard module
sys.path.insert(0, str(ROOT / "src"))

from speculators_convert.bench import analysis, closed_loop  # noqa: E402
from speculators_convert.serving.client import Client  # noqa: E402
from speculators_convert.serving.config import ServerConfig  # noqa: E402
from speculators_convert.serving.process import running  # noqa: E402
from speculators_convert.workloads.base import Request  # noqa: E402

INPUT, OUTPUT, REQUESTS, VOCABULARY = 48, 32, 24, 1000
ORDER = ("ours", "sglang", "sglang", "ours")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cpu = options.device == "cpu"
    config = ServerConfig(
        name="plain", role="plain", target=options.target, device=options.device, dtype="float32" if cpu else "bfloat16", mode="eager" if cpu else "graph",
        attention_backend="torch_native" if cpu else "triton", max_running_requests=options.concurrency,
    )  # fmt: skip
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, running(config, Path(name) / "log", timeout=600) as server:
        port = int(server.command[server.command.index("--port") + 1])
        ours(port, options.concurrency, seed=0)
        for turn, who in enumerate(ORDER):
            found = ours(port, options.concurrency, seed=turn) if who == "ours" else sglangs(port, options, turn, Path(name) / "out.jsonl")
            runs.append({"generator": who, **found})
            print(json.dumps(runs[-1]), flush=True)
    summary = {who: {key: statistics.median(run[key] for run in runs if run["generator"] == who) for key in runs[0] if key != "generator"} for who in ("ours", "sglang")}
    print(json.dumps(summary, indent=2))
    if options.json:
        options.json.write_text(json.dumps({"command": sys.argv[1:], "runs": runs, "medians": summary}, indent=2) + "\n")


def ours(port: int, concurrency: int, seed: int) -> dict[str, float]:
    """Random ids through `bench/closed_loop.py`."""
    generator = random.Random(seed)  # noqa: S311
    requests = [Request(str(index), "", tuple(generator.randrange(3, VOCABULARY) for _ in range(INPUT))) for index in range(REQUESTS)]
    clients = [Client(port, 300) for _ in range(concurrency)]
    rows = closed_loop.run(requests, [lambda request, client=client: client.stream(request.input_ids, tokens=OUTPUT) for client in clients], OUTPUT)
    for client in clients:
        client.close()
    times = {"ttft_ms": analysis.time_to_first_token(rows), "tpot_ms": analysis.time_per_output_token(rows), "e2e_ms": analysis.end_to_end(rows)}
    return {"tokens_per_second": analysis.throughput(rows), **{name: statistics.median(values) for name, values in times.items()}}


def sglangs(port: int, options: argparse.Namespace, turn: int, out: Path) -> dict[str, float]:
    """The same through `sglang.bench_serving`."""
    words = [
        sys.executable, "-m", "sglang.bench_serving", "--backend", "sglang", "--port", str(port), "--model", options.target, "--dataset-name", "random-ids", "--tokenize-prompt",
        "--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT), "--random-range-ratio", "1", "--num-prompts", str(REQUESTS),
        "--max-concurrency", str(options.concurrency), "--seed", str(turn), "--output-file", str(out), "--disable-tqdm",
    ]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
    last = json.loads(out.read_text().splitlines()[-1])
    return {"tokens_per_second": last["output_throughput"], "ttft_ms": last["median_ttft_ms"], "tpot_ms": last["median_tpot_ms"], "e2e_ms": last["median_e2e_latency_ms"]}


if __name__ == "__main__":
    main()
