"""Servers side by side, as many as memory and cores allow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from speculators_convert.serving import devices
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.process import Live, NotStartedError, ServerFailedError, running
from speculators_convert.smoke.sglang.ask import Rows, ask
from speculators_convert.smoke.sglang.nodes import Leader, leading
from speculators_convert.smoke.sglang.plan import DRAFTED
from speculators_convert.smoke.sglang.store import Store
from speculators_convert.smoke_result import Prompt, SmokeConfig

OVERHEAD_BYTES = 6 * 1024**3
"""Context, kernels and work space of one server beside its weights (a fixture's server held 3 GB on an H200 beside a pool of no size)."""
USABLE_SHARE, CORES_PER_SERVER = 0.8, 2
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows by server name, and why a server has none."""

    rows: Mapping[str, Rows]
    failures: tuple[ServerFailedError, ...]


def run(servers: Sequence[ServerConfig], config: SmokeConfig, prompts: Sequence[Prompt], store: Store, progress: Progress) -> Outcome:
    """Start and ask each server that the store has no rows of. After a drafted server failed no further one is started."""
    with leading(config.servers.nodes) as leader:
        return _run(servers, config, prompts, store, _Said(progress, len(servers)), leader)


def _run(servers: Sequence[ServerConfig], config: SmokeConfig, prompts: Sequence[Prompt], store: Store, said: _Said, leader: Leader) -> Outcome:
    live = Live()
    rows, failures, pending = dict[str, Rows](), list[ServerFailedError](), list[ServerConfig]()
    for server in servers:
        kept = store.read(server, store.key(server, config, prompts))
        if kept is None:
            pending.append(server)
        else:
            rows[server.name] = kept
            said.done(server, "kept")
    with ThreadPoolExecutor(at_once(pending, config)) as pool:
        try:
            waiting = {pool.submit(_one, server, config, prompts, store, live, said, leader): server for server in _placed(pending, config)}
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    server = waiting.pop(future)
                    failure = _collect(future, server, rows)
                    if failure is not None:
                        failures.append(failure)
        finally:
            for future in waiting:
                future.cancel()
            live.end()
    return Outcome(rows, tuple(failures))


def _one(server: ServerConfig, config: SmokeConfig, prompts: Sequence[Prompt], store: Store, live: Live, said: _Said, leader: Leader) -> Rows:
    said.now(server, "starting")
    try:
        with leader.runs(server), running(server, store.log(server), timeout=config.timeout_seconds, live=live) as up:
            rows = ask(up, prompts, config, partial(said.now, server))
    except ServerFailedError:
        if server.role == DRAFTED:
            live.close()
        raise
    store.write(server, store.key(server, config, prompts), rows)
    said.done(server, "done")
    return rows


def _collect(future: Future[Rows], server: ServerConfig, rows: dict[str, Rows]) -> ServerFailedError | None:
    try:
        rows[server.name] = future.result()
    except ServerFailedError as error:
        return error
    except NotStartedError:
        return None
    return None


def at_once(servers: Sequence[ServerConfig], config: SmokeConfig) -> int:
    """How many of `servers` run side by side: stated, or what cores and the GPUs' free memory allow, at least one."""
    if config.servers.parallel is not None:
        return config.servers.parallel
    if config.servers.nodes is not None or not servers:
        return 1
    cores = os.cpu_count() or 1
    if config.device == "cpu":
        return max(1, min(len(servers), cores // max(server.tp for server in servers)))
    return max(1, min(len(servers), cores // CORES_PER_SERVER, int(USABLE_SHARE * _free_bytes() / max(map(_need_bytes, servers)))))


def _placed(servers: Sequence[ServerConfig], config: SmokeConfig) -> list[ServerConfig]:
    """On several GPUs, servers of one rank take turns on them."""
    count = len(devices.gpus()) if config.device != "cpu" else 0
    if count < 2:
        return list(servers)
    return [server.model_copy(update={"gpus": (index % count,)}) if server.tp == 1 else server for index, server in enumerate(servers)]


def _free_bytes() -> int:
    return sum(gpu.free_bytes for gpu in devices.gpus())


def _need_bytes(server: ServerConfig) -> int:
    """Estimate over all of its GPUs: weights, a pool as large as the weights at most, and the overhead of each rank."""
    folders = [Path(folder) for folder in (server.target, server.draft) if folder is not None]
    weights = sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors"))
    return int(weights * 1.5) + server.tp * OVERHEAD_BYTES


class _Said:
    """Progress of several threads on one line."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._finished, self._lock = progress, total, 0, Lock()

    def now(self, server: ServerConfig, what: str) -> None:
        del server, what
        with self._lock:
            self._progress(self._finished, self._total, "servers")

    def done(self, server: ServerConfig, what: str) -> None:
        with self._lock:
            self._finished += 1
        self.now(server, what)
