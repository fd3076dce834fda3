"""Wall time of `spec-convert inspect` on a fixture against `python -c "import torch"`, interleaved in one run.

    python benchmarks/inspect.py [--repeats 7] [--out FILE]

Goal: at most 0.25.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRAFT = ROOT / "fixtures" / "trained" / "tiny-bonus-reduced-vanilla"
GOAL = 0.25
COMMANDS = {
    "inspect": [sys.executable, "-m", "speculators_convert", "inspect", str(DRAFT), "--format", "json"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def main() -> None:
    """Measure and print; exits 1 when the ratio misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(options.repeats + 1):
        for name, command in COMMANDS.items():
            took = timed(command)
            if turn:  # the first turn warms the file cache
                seconds[name].append(took)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = medians["inspect"] / medians["import torch"]
    for name, times in seconds.items():
        print(f"{name:<13} median {medians[name]:.3f} s, {min(times):.3f} to {max(times):.3f}, {len(times)} runs")
    print(f"ratio {ratio:.3f} (goal: at most {GOAL})")
    if options.out:
        options.out.write_text(json.dumps({"seconds": seconds, "ratio": ratio, "goal": GOAL, "python": platform.python_version()}, indent=2) + "\n")
    sys.exit(ratio > GOAL)


def timed(command: list[str]) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
