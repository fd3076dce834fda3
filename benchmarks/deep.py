"""Speed and memory of `--deep` against numpy summing the same bytes as uint16.

    python -m benchmarks.deep [--megabytes 1024] [--rounds 5]

Writes one BF16 file, reads it once to warm the page cache, then times both in turn and prints the best and the median of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from speculators_convert.checkpoint import collect
from speculators_convert.container.header import Tensor, encode
from speculators_convert.sources import LocalSource
from speculators_convert.values import CHUNK_BYTES, scan

COLUMNS = 4096
GOAL = 0.6


def write(folder: Path, megabytes: int) -> Path:
    """A file of normal values in several tensors."""
    path, rows = folder / "model.safetensors", 1024
    count = max(1, megabytes // 8)
    tensors = [Tensor(f"layers.{index}.weight", "BF16", (rows, COLUMNS), 0, rows * COLUMNS * 2) for index in range(count)]
    values = (np.random.default_rng(0).normal(0, 0.1, rows * COLUMNS).astype("<f4").view("<u4") >> 16).astype("<u2")
    with path.open("wb") as file:
        file.write(encode(tensors, {"format": "pt"}))
        for index in range(count):
            file.write(np.roll(values, index).tobytes())
    (folder / "config.json").write_text("{}")
    return path


def main() -> int:
    """Print both times, their ratio, and the highest memory of a scan; exit 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), options.megabytes)
        source = LocalSource(Path(name))
        checkpoint = collect(source)
        offset = checkpoint.headers["model.safetensors"].size_bytes
        times: dict[str, list[float]] = {"numpy": [], "scan": []}
        for _ in range(options.rounds + 1):
            start = time.perf_counter()
            int(np.memmap(path, "<u2", mode="r", offset=offset).sum())
            middle = time.perf_counter()
            facts = scan(source, checkpoint)
            times["numpy"].append(middle - start)
            times["scan"].append(time.perf_counter() - middle)
        tracemalloc.start()
        scan(source, checkpoint)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    best = {key: min(values[1:]) for key, values in times.items()}
    middle_times = {key: statistics.median(values[1:]) for key, values in times.items()}
    size = sum(item.elements * 2 for item in facts.tensors)
    report = {
        "bytes": size,
        "gigabytes_per_second": {key: round(size / value / 1e9, 2) for key, value in best.items()},
        "ratio_of_best": round(best["numpy"] / best["scan"], 2),
        "ratio_of_median": round(middle_times["numpy"] / middle_times["scan"], 2),
        "goal": GOAL,
        "peak_bytes": peak,
        "chunk_bytes": CHUNK_BYTES,
    }
    print(json.dumps(report, indent=2))
    return int(report["ratio_of_median"] < GOAL)


if __name__ == "__main__":
    sys.exit(main())
