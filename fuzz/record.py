"""Make the record of a fuzz run from its logs: python fuzz/record.py LOGS COMMIT > docs/evidence/fuzz.json

LOGS holds TARGET.log (libFuzzer's own output), TARGET.time (`/usr/bin/time -v`) and whatever libFuzzer saved (crash-*, timeout-*, oom-*).
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

COMMAND = (
    "chrt -i 0 nice -n 19 python fuzz/run.py --target=TARGET -max_total_time=SECONDS -print_final_stats=1 -rss_limit_mb=1024 -timeout=60 -max_len=4096 FOUND fuzz/corpus/TARGET"
)
PACKAGES = ("atheris", "numpy", "pydantic", "rich", "safetensors")


def record(logs: Path, commit: str) -> dict[str, object]:
    """The record: commit, versions, command, and for each target libFuzzer's final statistics, the time used and the defects saved."""
    targets = {path.stem: target(path) for path in sorted(logs.glob("*.log"))}
    environment = {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine(), **{name: version(name) for name in PACKAGES}}
    return {"commit": commit, "command": COMMAND, "environment": environment, "targets": targets}


def target(log: Path) -> dict[str, object]:
    """Statistics of one target."""
    text, time = log.read_text(errors="replace"), log.with_suffix(".time").read_text()
    done = re.search(r"DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)/", text)
    seconds = re.search(r"Done \d+ runs in (\d+) second", text)
    saved = sorted(path.name for kind in ("crash", "timeout", "oom", "leak") for path in log.parent.glob(f"{log.stem}-{kind}-*"))
    cpu = sum(float(item) for item in re.findall(r"(?:User|System) time \(seconds\): ([\d.]+)", time))
    status = re.search(r"Exit status: (\d+)", time)
    return {
        "finished": done is not None,
        "wall_seconds": int(seconds[1]) if seconds else None,
        "cpu_seconds": round(cpu),
        "exit_status": int(status[1]) if status else None,
        "defects": saved,
        "libfuzzer": {key: int(value) for key, value in re.findall(r"stat::(\w+):\s+(\d+)", text)},
        "edges": int(done[1]) if done else None,
        "features": int(done[2]) if done else None,
        "corpus_files": int(done[3]) if done else None,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(record(Path(sys.argv[1]), sys.argv[2]), indent=2) + "\n")
