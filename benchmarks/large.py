"""`inspect` on sparse sharded checkpoints of 1,000, 5,000 and 20,000 tensors: time and memory of the whole command.

    python benchmarks/large.py [--rounds 3] [--out FILE]

The largest has the size of 200 GB and takes a few megabytes of disk. Time is user plus system time of the process and wall
time; memory is the peak that the kernel notes for it. The slope is the least-squares cost of one more tensor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = (90, 454, 1818)
SHARD_BYTES = 5_000_000_000


def measure(folder: Path, form: str) -> dict[str, float]:
    """One run of the command."""
    began = time.monotonic()
    with Path(os.devnull).open("wb") as nowhere:
        child = subprocess.Popen(
            [sys.executable, "-m", "speculators_convert", "inspect", str(folder), "--format", form], stdout=nowhere, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        )
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"inspect ended with {child.returncode}")
    return {"wall_seconds": time.monotonic() - began, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024}


def row(folder: Path, layers: int, rounds: int) -> dict[str, object]:
    """Medians for one checkpoint, in both forms."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    found: dict[str, object] = {"tensors": 11 * layers + 11, "shards": len(list(folder.glob("*.safetensors"))), "size_bytes": size}
    for form in ("text", "json"):
        runs = [measure(folder, form) for _ in range(rounds)]
        found[form] = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]} | {"best_wall_seconds": round(min(run["wall_seconds"] for run in runs), 3)}
    return found


def slopes(rows: list[dict[str, object]]) -> dict[str, object]:
    """Microseconds of processor time for one more tensor, between neighbours: about the same when the cost is linear."""
    pairs = list(pairwise(rows))
    return {
        form: [round(1e6 * (after[form]["cpu_seconds"] - before[form]["cpu_seconds"]) / (after["tensors"] - before["tensors"]), 1) for before, after in pairs]  # type: ignore[index, operator]
        for form in ("text", "json")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for layers in LAYERS:
            folder = Path(scratch) / str(layers)
            maker = [sys.executable, str(ROOT / "tools" / "make_sparse.py"), str(folder), "--layers", str(layers), "--shard-bytes", str(SHARD_BYTES)]
            subprocess.run(maker, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
            rows.append(row(folder, layers, options.rounds))
    text = json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "rounds": options.rounds, "rows": rows, "microseconds_per_tensor": slopes(rows)}, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
