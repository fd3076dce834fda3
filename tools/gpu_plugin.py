"""Evidence for the SGLang plugin on a GPU host: servers in each mode, their answers and drafted blocks, and the reference engine beside them.

    python3 tools/gpu_plugin.py --out evidence.jsonl --parallel 8              # again until it says that nothing is left
    python3 tools/gpu_plugin.py --out evidence.jsonl --parallel 16 --gpus 2    # two ranks as well
    python3 tools/gpu_plugin.py --out evidence.jsonl --report                  # the claims, from the raw rows

One line of the file is one slice: versions, GPU, commit, command, raw rows. Slices that the file has are not run again, failed ones are.
Needs stock SGLang 0.5.23 in the running Python; the project needs no installation.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/sglang"), str(ROOT / "src")]

from gpu.claims import plain_target, report  # noqa: E402
from gpu.plan import FIXTURES, Slice, preparation, slices  # noqa: E402
from gpu.runs import Row, engine_slice, failed, read_lines, serve_slice  # noqa: E402
from gpu.site import make_site  # noqa: E402

from speculators_convert.serving.turns import turn  # noqa: E402

SECONDS_PER_SLICE = 420
SHORTEST_SERVER, SHORTEST_ENGINE = 120, 30
"""Seconds that must be left for a slice to start."""


@dataclass
class Host:
    """The machine's GPUs, and how many servers may start at once: a start is bound by Python, a running server is not."""

    gpus: int
    starting: threading.Semaphore
    stop: float
    """Monotonic time after which nothing may run."""
    _load: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._load = [0] * self.gpus

    def left(self) -> float:
        """Seconds that a slice may still take."""
        return min(SECONDS_PER_SLICE, self.stop - time.monotonic())

    @contextmanager
    def on_gpus(self, count: int) -> Iterator[tuple[int, ...]]:
        """The `count` GPUs with the least on them."""
        with self._lock:
            chosen = tuple(sorted(sorted(range(self.gpus), key=lambda index: self._load[index])[:count]))
            for index in chosen:
                self._load[index] += 1
        try:
            yield chosen
        finally:
            with self._lock:
                for index in chosen:
                    self._load[index] -= 1


@dataclass(frozen=True)
class Options:
    """What the command line says about a run."""

    out: Path
    budget: float
    only: str
    parallel: int
    gpus: int
    engines: int
    commit: str
    device: str
    dtype: str


def run(options: Options) -> None:
    """Run what the file lacks while the budget lasts, servers and reference engine side by side; each result is written when it is there."""
    host = Host(options.gpus, threading.Semaphore(options.parallel), time.monotonic() + options.budget)
    folder = Path(tempfile.mkdtemp(prefix="gpu-plugin-"))
    site = make_site(folder / "site")
    around, running = surroundings(site, options.commit), dict[Future[Row | None], str]()
    with ThreadPoolExecutor(4 * options.parallel) as servers, ThreadPoolExecutor(options.engines) as engines:
        for item in pending_servers(options):
            prepared = engines.submit(_prepare, item, host)
            running[servers.submit(_serve, item, folder / item.name, site, host, prepared)] = item.name
        begun = set[str]()
        while True:
            for name in [name for name in pending_engine(options) if name not in begun]:
                begun.add(name)
                running[engines.submit(_engine, name, options, host)] = name
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                if result := _result(future, running.pop(future)):
                    append(options.out, {**around, **result})
    servers_left, engine_left = [item.name for item in pending_servers(options)], pending_engine(options)
    print(f"left: {len(servers_left)} servers {servers_left}, {len(engine_left)} runs of the reference engine {engine_left}")


def _result(future: Future[Row | None], name: str) -> Row | None:
    """What a slice brought; an error of our own is a failure of that slice only."""
    error = future.exception()
    return failed(name, name.partition(".")[0], f"{type(error).__name__}: {error}") if error else future.result()


def pending_servers(options: Options) -> list[Slice]:
    """Servers that the file lacks."""
    done = complete(options.out)
    return [item for item in slices(options.gpus) if item.name not in done and re.search(options.only, item.name)]


def pending_engine(options: Options) -> list[str]:
    """Runs of the reference engine that the file lacks: one over each draft's prompts, and one after each server of the plugin with the plain target."""
    done = complete(options.out)
    served = [line for line in done.values() if line["kind"] == "server" and plain_target(line) and "speculators_dspark" in line["plugins"]]
    names = [*(f"{draft}.reference" for draft in FIXTURES), *(f"{line['name']}.agreement" for line in served)]
    return [name for name in names if name not in done and re.search(options.only, name)]


def complete(out: Path) -> dict[str, Row]:
    """Slices of the file that did not fail, by name."""
    return {line["name"]: line for line in read_lines(out) if line["kind"] != "failed"}


def _prepare(item: Slice, host: Host) -> None:
    """What the slice needs beforehand; without it the slice does the same, later."""
    if words := preparation(item):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(words, capture_output=True, check=False, timeout=host.left())


def _serve(item: Slice, folder: Path, site: Path, host: Host, prepared: Future[None]) -> Row | None:
    """One server; nothing when the time left is too short. Another may start as soon as this one is ready."""
    prepared.result()
    with ExitStack() as start:
        start.enter_context(host.starting)
        if host.left() < SHORTEST_SERVER:
            return None
        with host.on_gpus(item.tp) as gpus:
            return serve_slice(item, folder, site, gpus=gpus, seconds=host.left(), ready=start.close, asking=turn(item.tp, lambda: None))


def _engine(name: str, options: Options, host: Host) -> Row | None:
    """One run of the reference engine in a process of its own: its decoding is bound by Python."""
    if host.left() < SHORTEST_ENGINE:
        return None
    draft = name.partition(".")[0]
    words = [sys.executable, str(Path(__file__).resolve()), "--engine", name, "--out", str(options.out), "--device", options.device, "--dtype", options.dtype]
    with host.on_gpus(1) as gpus:
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
        try:
            done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=host.left())
        except subprocess.TimeoutExpired:
            return failed(name, draft, f"not done after {host.left():.0f} s")
        except subprocess.CalledProcessError as error:
            return failed(name, draft, error.stderr)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def surroundings(site: Path, commit: str) -> Row:
    """Versions, GPU, entry points and live hooks, as `doctor` sees them here."""
    environ = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", "SGLANG_PLUGINS": "speculators_dspark,draft_recorder"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "speculators_convert.sglang_plugin.doctor"], env=environ, capture_output=True, text=True, check=True)
    return {"commit": commit, "doctor": json.loads(done.stdout[done.stdout.index("{") :])}


def append(out: Path, line: Row) -> None:
    """One more line, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")
    print(f"{line['kind']} {line['name']}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=420, help="seconds; nothing runs longer, and what might not fit is left for the next call")
    parser.add_argument("--only", default="", help="regular expression over slice names")
    parser.add_argument("--parallel", type=int, default=8, help="servers that start at once; one that is ready makes room")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs to spread over; two ranks are served with two")
    parser.add_argument("--engines", type=int, default=max(2, (os.cpu_count() or 4) // 4), help="runs of the reference engine at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--engine", default=None, help=argparse.SUPPRESS)
    words = vars(parser.parse_args())
    reporting, engine = words.pop("report"), words.pop("engine")
    words["commit"] = words["commit"] or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    options = Options(**words)
    if reporting:
        claims = report(read_lines(options.out))
        print("\n".join(f"{'holds' if holds else 'FAILS'}  {claim}: {numbers}" for claim, holds, numbers in claims))
        sys.exit(0 if claims and all(holds for _, holds, _ in claims) else 1)
    if engine:
        print(json.dumps(engine_slice(engine, complete(options.out), options.device, options.dtype), sort_keys=True))
    else:
        run(options)


if __name__ == "__main__":
    main()
