"""Servers side by side, as many as memory and cores allow."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from speculators_convert.results.smoke import Prompt, SmokeConfig
from speculators_convert.serving import devices
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.process import Live, NotStartedError, ServerFailedError, running
from speculators_convert.serving.turns import turn
from speculators_convert.smoke.sglang.ask import Rows, ask
from speculators_convert.smoke.sglang.nodes import Leader, leading
from speculators_convert.smoke.sglang.plan import DRAFTED
from speculators_convert.smoke.sglang.store import Store

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
            said.done()
    waiting, number = dict[Future[Rows], ServerConfig](), at_once(pending, config)
    share = Shared(config, prompts, store, live, said, leader, Places(config, number))
    with ThreadPoolExecutor(number) as pool:
        try:
            for server in pending:
                waiting[pool.submit(_one, server, share)] = server
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


def _one(server: ServerConfig, share: Shared) -> Rows:
    config, store = share.config, share.store
    try:
        with (
            share.places.taken(server) as placed,
            share.leader.runs(placed),
            running(placed, store.log(server), timeout=config.timeout_seconds, live=share.live) as up,
            turn(server.tp, up.check),
        ):
            rows = ask(up, share.prompts, config)
    except ServerFailedError:
        if server.role == DRAFTED:
            share.live.close()
        raise
    store.write(server, store.key(server, config, share.prompts), rows)
    share.said.done()
    return rows


def _collect(future: Future[Rows], server: ServerConfig, rows: dict[str, Rows]) -> ServerFailedError | None:
    try:
        rows[server.name] = future.result()
    except ServerFailedError as error:
        return error
    except NotStartedError:
        pass  # no server starts after a drafted one failed
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
    free, need = [gpu.free_bytes for gpu in devices.gpus()], max(map(_need_bytes, servers))
    alone = [server for server in servers if server.tp == 1]
    fit = int(USABLE_SHARE * sum(free) / need) if len(alone) < len(servers) else len(free) * int(USABLE_SHARE * min(free, default=0) / need)
    return max(1, min(len(servers), cores // CORES_PER_SERVER, fit))


@dataclass(frozen=True, slots=True)
class Shared:
    """What all servers of a run share."""

    config: SmokeConfig
    prompts: Sequence[Prompt]
    store: Store
    live: Live
    said: _Said
    leader: Leader
    places: Places


class Places:
    """On several GPUs, servers of one rank take turns on them; each has as many places as servers run at once."""

    def __init__(self, config: SmokeConfig, number: int) -> None:
        indices = [gpu.index for gpu in devices.gpus()] if config.device != "cpu" else []
        self._free: queue.SimpleQueue[int] | None = queue.SimpleQueue() if len(indices) > 1 else None
        if self._free is not None:
            for place in range(max(number, len(indices))):
                self._free.put(indices[place % len(indices)])

    @contextmanager
    def taken(self, server: ServerConfig) -> Iterator[ServerConfig]:
        """The server on a GPU of its own turn, while it runs."""
        if self._free is None or server.tp > 1:
            yield server
            return
        index = self._free.get()
        try:
            yield server.model_copy(update={"gpus": (index,)})
        finally:
            self._free.put(index)


def _need_bytes(server: ServerConfig) -> int:
    """Estimate over all of its GPUs: weights, a pool as large as the weights at most, and the overhead of each rank."""
    folders = [Path(folder) for folder in (server.target, server.draft) if folder is not None]
    weights = sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors"))
    return int(weights * 1.5) + server.tp * OVERHEAD_BYTES


class _Said:
    """Progress of several threads on one line."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._finished, self._lock = progress, total, 0, Lock()
        progress(0, total, "servers")

    def done(self) -> None:
        with self._lock:
            self._finished += 1
            self._progress(self._finished, self._total, "servers")
