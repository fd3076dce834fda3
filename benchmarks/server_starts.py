"""What a second server costs: an eager and a graph server started side by side against one alone, as `smoke` does it.

    python benchmarks/server_starts.py [--device cuda] [--rounds 1] [--json FILE]

Wall seconds from the start to the last healthy answer. The first start of a host compiles kernels and is not counted. Every second round
begins with the two, so that a drift of the machine falls on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from speculators_convert.serving import devices
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.process import running
from speculators_convert.smoke import pair

GOAL, TIMEOUT_SECONDS = 1.3, 400.0


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm", action="store_true", help="the host has compiled its kernels: no start that is not counted")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    modes = ("eager", "graph") if options.device != "cpu" else ("eager", "eager")
    with tempfile.TemporaryDirectory() as name:
        if not options.warm:
            together(Path(name), options.device, modes)
        alone, both = list[float](), list[float]()
        for number in range(options.rounds):
            for seconds, started in [(alone, modes[-1:]), (both, modes)][:: -1 if number % 2 else 1]:
                seconds.append(together(Path(name), options.device, started))
    ratio = statistics.median(both) / statistics.median(alone)
    found = {"device": options.device, "gpus": [gpu.name for gpu in devices.gpus()], "modes": modes, "alone_seconds": alone, "both_seconds": both, "ratio": ratio, "goal": GOAL}
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


def together(folder: Path, device: str, modes: tuple[str, ...]) -> float:
    """Seconds until all servers answer; then they are ended."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(modes)) as pool:
        return max(pool.map(lambda item: _up(config(item[0], item[1], device), folder, began), enumerate(modes)))


def config(index: int, mode: str, device: str) -> ServerConfig:
    """A server of the pair that ships with the package."""
    attention = "torch_native" if device == "cpu" else "triton"
    return ServerConfig(
        name=f"{mode}-{index}", role="drafted", target=str(pair.TARGET), draft=str(pair.DRAFT), mode="graph" if mode == "graph" else "eager", device=device,
        dtype="float32" if device == "cpu" else "bfloat16", attention_backend=attention, draft_attention_backend=attention, max_total_tokens=4096,
        memory_fraction=0.5 if device == "cpu" else 0.9,
    )  # fmt: skip


def _up(server: ServerConfig, folder: Path, began: float) -> float:
    with running(server, folder / f"{server.name}.log", timeout=TIMEOUT_SECONDS):
        return time.monotonic() - began


if __name__ == "__main__":
    main()
