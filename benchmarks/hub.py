"""What the network costs, counted by a local Hub server: `inspect` against huggingface_hub and a download, and two ways to normalize.

    python benchmarks/hub.py [--rounds 3] [--out FILE]

The draft has the shape of a published one (66 tensors, 1.90 GB; weights are holes). Bytes and requests are what the server
sent, headers and redirects included. `normalize` reads from the server directly; the other way is `hf download`, then
`normalize` on the folder. Both check or leave unchecked what they do by default: `normalize` compares the published SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "hub"))

from local_hub import Body, LocalHub, run_hub  # noqa: E402

REPOSITORY = "org/draft"
METADATA = f"import huggingface_hub; huggingface_hub.HfApi().get_safetensors_metadata({REPOSITORY!r})"
DOWNLOAD = f"import sys, huggingface_hub; huggingface_hub.snapshot_download({REPOSITORY!r}, local_dir=sys.argv[1])"


def environment(hub: LocalHub, home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT / "src")}


def measure(hub: LocalHub, home: Path, *commands: list[str]) -> dict[str, float]:
    """Bytes, requests and time of commands run one after the other."""
    hub.log.clear()
    began = time.monotonic()
    for command in commands:
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=environment(hub, home))
    return {"bytes": hub.sent_bytes, "requests": hub.requests, "seconds": round(time.monotonic() - began, 2)}


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def compare(hub: LocalHub, scratch: Path, rounds: int) -> dict[str, object]:
    """All measurements; the two ways to normalize take turns."""
    module = ["-m", "speculators_convert"]
    home, copy, out = scratch / "home", scratch / "copy", scratch / "out"
    network = {
        "inspect": measure(hub, home, [*module, "inspect", REPOSITORY]),
        "get_safetensors_metadata": measure(hub, home, ["-c", METADATA]),
        "download": measure(hub, home, ["-c", DOWNLOAD, str(copy)]),
    }
    ways: dict[str, list[dict[str, float]]] = {"direct": [], "download_then_normalize": []}
    for _ in range(rounds):
        for way, runs in ways.items():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)
            os.sync()
            commands = (
                [["-c", DOWNLOAD, str(copy)], [*module, "normalize", str(copy), "--out", str(out)]] if way != "direct" else [[*module, "normalize", REPOSITORY, "--out", str(out)]]
            )
            runs.append(measure(hub, home, *commands))
    return {"network": network, "normalize": {way: median(runs) for way, runs in ways.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, run_hub() as hub:
        scratch = Path(folder)
        draft = scratch / "draft"
        subprocess.run([sys.executable, str(ROOT / "tools" / "make_sparse.py"), str(draft)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
        weights = draft / "model.safetensors"
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        hub.add(REPOSITORY, {"config.json": Body((draft / "config.json").read_bytes()), "model.safetensors": Body(weights, lfs=True, sha256=digest)})
        found = {
            "huggingface_hub": version("huggingface_hub"),
            "size_bytes": weights.stat().st_size,
            "rounds": options.rounds,
            "load": os.getloadavg()[0],
            **compare(hub, scratch, options.rounds),
        }
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
