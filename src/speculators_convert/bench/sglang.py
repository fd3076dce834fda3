"""SGLang as the engine of a run: one server for each step, asked over HTTP with token ids."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from speculators_convert.bench import closed_loop
from speculators_convert.results.bench import BenchOptions, BenchPlan, RequestRow, Step
from speculators_convert.serving import devices
from speculators_convert.serving.client import Client
from speculators_convert.serving.command import variables
from speculators_convert.serving.config import PLUGIN_NAME, PLUGIN_VARIABLE, SLEEP, ServerConfig
from speculators_convert.serving.process import Live, Running, require_sglang, running
from speculators_convert.smoke.sglang import attention, plugin
from speculators_convert.spec import DraftSpec
from speculators_convert.workloads.base import Request, Workload

NO_PLUGIN = "none"
"""A name that no plugin has: SGLang loads those that are listed."""
SPARE_TOKENS, MIN_POOL_TOKENS = 64, 4096
"""KV rows of one request beside its tokens: blocks that are drafted and verified past its end."""
MEMORY_FRACTION = {"cpu": 0.5, "cuda": 0.9}


def settings(options: BenchOptions) -> dict[str, str]:
    """What the options leave open, decided from this machine. `SmokeError` without SGLang."""
    require_sglang()
    device = options.device or ("cuda" if devices.gpus() else "cpu")
    attention = options.attention_backend or ("torch_native" if device == "cpu" else "triton")
    return {
        "device": device,
        "mode": options.mode or ("eager" if device == "cpu" else "graph"),
        "dtype": options.dtype or ("float32" if device == "cpu" else "bfloat16"),
        "tp": str(options.tp),
        "attention_backend": attention,
        "draft_attention_backend": options.draft_attention_backend or attention,
        "server_words": " ".join(options.server_words),
    }


def notes(chosen: Mapping[str, str], drafts: Mapping[str, DraftSpec], target: Path, options: BenchOptions) -> dict[str, str]:
    """What the run must say of the back ends in `chosen`, for the target and each draft; `UsageError` where one cannot serve."""
    found, on, graph = dict[str, str](), attention.capability(chosen["device"]), chosen["mode"] == "graph"
    heads = attention.target_heads(target)
    for arm, spec in drafts.items():
        live = plugin.in_force(spec) and arm not in options.stock
        said = attention.notes({"target": chosen["attention_backend"], "draft": chosen["draft_attention_backend"]}, on, spec, heads, plugin_live=live, graph=graph)
        found |= {"target attention" if role == "target" else f"draft attention, {arm}": note for role, note in said.items()}
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """A running server with one connection for each place in flight."""

    running: Running
    variables: dict[str, str]
    output_tokens: int
    timeout: float

    @property
    def command(self) -> tuple[str, ...]:
        """The words it was started with."""
        return self.running.command

    @property
    def start_seconds(self) -> float:
        """From its start to its first answer."""
        return self.running.start_seconds

    def warm_up(self, requests: Sequence[Request], concurrency: int) -> None:
        """Requests that nobody measures, and an empty cache afterwards."""
        self.measure(requests, concurrency)
        self.running.client.flush_cache()

    def measure(self, requests: Sequence[Request], concurrency: int) -> list[RequestRow]:
        """One row for each request, `concurrency` in flight."""
        images = {request.name: request.image.uri for request in requests if request.image}
        port = int(self.running.command[self.running.command.index("--port") + 1])
        with self.running.asked(f"answering {concurrency} requests at once"), ExitStack() as stack:
            clients = [Client(port, self.timeout) for _ in range(concurrency)]
            for client in clients:
                stack.callback(client.close)
            return closed_loop.run(requests, [_stream(client, self.output_tokens, images) for client in clients], self.output_tokens)


def _stream(client: Client, output_tokens: int, images: Mapping[str, str]) -> closed_loop.Stream:
    return lambda request: client.stream(request.input_ids, tokens=output_tokens, image=images.get(request.name))


class SGLang:
    """Servers of a plan. `drafts` has the folder of each arm's draft, None for the target alone."""

    def __init__(self, plan: BenchPlan, workload: Workload, target: Path, drafts: Mapping[str, Path | None], options: BenchOptions) -> None:
        self._plan, self._target, self._drafts, self._options, self._live = plan, target, drafts, options, Live()
        longest = max(len(request.input_ids) for request in workload.requests)
        self._pool = max(MIN_POOL_TOKENS, max(plan.concurrency) * (longest + plan.output_tokens + SPARE_TOKENS))

    @contextmanager
    def start(self, step: Step, log: Path) -> Iterator[Asked]:
        """The server of `step`, ended on every way out; its output goes to `log`."""
        config = self.config(step)
        with running(config, log, timeout=self._options.timeout_seconds, live=self._live) as server:
            yield Asked(server, variables(config), self._plan.output_tokens, self._options.timeout_seconds)

    def end(self) -> None:
        """End all servers that other threads wait for."""
        self._live.end()

    def config(self, step: Step) -> ServerConfig:
        """What the server of `step` is started with."""
        draft, chosen = self._drafts[step.arm], self._plan.settings
        arm = next(arm for arm in self._plan.arms if arm.name == step.arm)
        return ServerConfig(
            name=f"{step.index:03}-{step.arm}",
            role="plain" if draft is None else "drafted",
            target=str(self._target),
            draft=None if draft is None else str(draft),
            mode="graph" if chosen["mode"] == "graph" else "eager",
            tp=self._options.tp,
            device=chosen["device"],
            dtype=chosen["dtype"],
            attention_backend=chosen["attention_backend"],
            draft_attention_backend=None if draft is None else chosen["draft_attention_backend"],
            max_running_requests=max(self._plan.concurrency),
            max_total_tokens=self._pool,
            memory_fraction=MEMORY_FRACTION[chosen["device"]],
            words=(*((SLEEP,) if self._plan.side_by_side > 1 else ()), *self._options.server_words),
            environment={} if arm.plugin else {PLUGIN_VARIABLE: _others(os.environ.get(PLUGIN_VARIABLE))},
        )


def _others(selected: str | None) -> str:
    """The plugins that are selected, without ours."""
    kept = [name for name in (selected or "").split(",") if name and name != PLUGIN_NAME]
    return ",".join(kept) or NO_PLUGIN
