"""Recorded performance runs on one GPU: the trained pair and a synthetic one at real widths, each as the target alone, native, dense and full.

    python3 tools/gpu_bench.py --out RUNS --budget 270           # again until it says that nothing is left
    python3 tools/gpu_bench.py --out RUNS --report               # the summaries, computed again from the raw rows
    tar -C RUNS -czf docs/evidence/RUN/bench-trained.tar.gz trained      # a test computes each recorded summary again

native is the reduced-vocabulary draft through the plugin, dense its rewrite over the whole vocabulary, full a draft of the whole vocabulary; the
latter two are served by stock SGLang without the plugin. The synthetic pair has random weights, so its acceptance is simulated by SGLang itself
(SGLANG_SIMULATE_ACC_LEN): what it measures is the cost of a step. Needs stock SGLang 0.5.23 in the running Python; the project needs no installation.
Models and the project's copy lie in --work and are made again on a fresh host; runs lie in --out and go on where they stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/sglang"), str(ROOT / "src"), str(ROOT / "tools")]

from gpu.site import make_site  # noqa: E402

import gpu_bench_models as models  # noqa: E402
from speculators_convert import api  # noqa: E402
from speculators_convert.errors import SpecConvertError  # noqa: E402
from speculators_convert.report.bench_html import render_bench  # noqa: E402
from speculators_convert.report.bench_png import write_png  # noqa: E402
from speculators_convert.report.bench_text import bench_lines  # noqa: E402
from speculators_convert.results.bench import BenchOptions, BenchReport  # noqa: E402

SIMULATED_LENGTH = "3"
SYNTHETIC_PROMPT, SYNTHETIC_REQUESTS = 256, 16
LEAST_SECONDS = 120
"""What must be left for a first group of servers: a cold host compiles kernels."""
PARTS = ("trained", "synthetic")


def main() -> int:
    """Command line; 1 while something is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/spec-convert-bench"))  # noqa: S108 (short paths in the records)
    parser.add_argument("--budget", type=float, default=270, help="seconds for this call")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side-by-side", type=int, default=4, help="servers that start together; one at a time is asked")
    parser.add_argument("--small", action="store_true", help="few requests, a small synthetic pair, no plugin of others: to see on a CPU that all of it runs")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(PARTS)
    if options.report:
        for part in chosen:
            _show(api.bench_analyze(options.out / part))
        return 0
    stop, site = time.monotonic() + options.budget, make_site(options.work / "site")
    left = [part for part in chosen if not _run(part, options, site, stop)]
    print("left:", ", ".join(left) or "nothing", flush=True)
    return int(bool(left))


def _run(part: str, options: argparse.Namespace, site: Path, stop: float) -> bool:
    """One part, as far as time allows; whether it is finished."""
    out, folder = options.out / part, options.work / part
    if (out / "manifest.json").exists():
        return True
    _models(part, folder, small=options.small)
    seconds = stop - time.monotonic()
    if seconds < LEAST_SECONDS:
        return False
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.pop("SGLANG_SIMULATE_ACC_LEN", None)
    os.environ.update(_environment(site, part))
    began, chosen = time.monotonic(), _options(part, folder, options).model_copy(update={"budget_seconds": seconds})
    try:
        report = api.bench(str(folder / "native"), out, options=chosen, progress=_say)
    except SpecConvertError as error:
        print(f"{part}: after {time.monotonic() - began:.0f} s: {error}; {error.hint}", flush=True)
        return False
    (options.out / f"{part}.html").write_text(render_bench(report))
    if find_spec("matplotlib"):
        write_png(report, options.out / f"{part}.png")
    _show(report)
    return True


def _options(part: str, folder: Path, options: argparse.Namespace) -> BenchOptions:
    """What `bench` is called with, so that both parts fit a slice of a few minutes each."""
    small = options.small
    return BenchOptions(
        target=str(folder / "target"), also=(("dense", str(folder / "dense")), ("full", str(folder / "full"))), stock=("dense", "full"),
        workload="mt-bench" if part == "trained" else str(folder / "requests.jsonl"), topic_limit=(1 if small else 5) if part == "trained" else None,
        output_tokens=16 if small else 128, concurrency=(1, 2) if small else (1, 8), repeats=options.repeats, warm_up=1 if small else 4,
        side_by_side=options.side_by_side, timeout_seconds=400,
    )  # fmt: skip


def _models(part: str, folder: Path, *, small: bool) -> None:
    """The part's models and requests, made once on a host."""
    ready = folder / "ready"
    if ready.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    if part == "trained":
        models.trained(folder)
    else:
        import torch  # noqa: PLC0415

        shape = models.SMALL if small else models.Shape()
        models.synthetic(folder, shape, "cuda" if torch.cuda.is_available() else "cpu")
        (folder / "requests.jsonl").write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in _requests(shape.vocab, small=small)))
    ready.touch()
    print(f"{part}: models made in {time.monotonic() - began:.0f} s", flush=True)


def _requests(vocab: int, *, small: bool) -> Iterator[list[int]]:
    """Token ids spread over the vocabulary; what they say does not matter to random weights."""
    for request in range(3 if small else SYNTHETIC_REQUESTS):
        yield [(request * 7919 + at * 104729) % vocab for at in range(32 if small else SYNTHETIC_PROMPT)]


def _environment(site: Path, part: str) -> dict[str, str]:
    """The project on the path of the servers; simulated acceptance for random weights."""
    inherited = os.environ.get("PYTHONPATH", "").removeprefix(f"{site}:")
    found = {"PYTHONPATH": f"{site}:{inherited}", "SGLANG_PLUGINS": os.environ.get("SGLANG_PLUGINS", "speculators_dspark")}
    return found | ({"SGLANG_SIMULATE_ACC_LEN": SIMULATED_LENGTH} if part == "synthetic" else {})


def _say(done: int, total: int, what: str) -> None:
    print(f"{done}/{total} {what}", flush=True)


def _show(report: BenchReport) -> None:
    print("\n".join(bench_lines(report)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
