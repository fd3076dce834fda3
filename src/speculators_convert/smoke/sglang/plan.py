"""Which servers prove a draft, and which of their answers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speculators_convert.results.smoke import Prompt, SmokeConfig
from speculators_convert.serving.config import SLEEP, Role, ServerConfig
from speculators_convert.smoke.sglang.nodes import rendezvous

PLAIN: Role = "plain"
DRAFTED: Role = "drafted"
NULL: Role = "null draft"
MIN_POOL_TOKENS = 4096
MEMORY_FRACTION = 0.95
"""Of the free memory; the pool itself is bounded by its tokens, so that several servers share a GPU."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the servers find their models; no null draft without the control. `null_backend` is the attention back end of its own, None that of the draft."""

    target: str
    draft: str
    null: str | None
    null_backend: str | None = None


def servers(config: SmokeConfig, folders: Folders, gamma: int, prompts: Sequence[Prompt]) -> tuple[ServerConfig, ...]:
    """One drafted server for each mode, one at TP 1 beside a larger degree, ordinary decoding, and the control's pair for each mode.

    On a CPU in float32 the ordinary drafted server is the control's drafted one: there are no batch-invariant kernels to ask for.
    """
    first = config.modes[0]
    found = [_server(config, folders, DRAFTED, mode, config.tp, gamma, prompts) for mode in config.modes]
    if config.tp > 1:
        found.append(_server(config, folders, DRAFTED, first, 1, gamma, prompts))
    found.append(_server(config, folders, PLAIN, first, config.tp, gamma, prompts))
    if folders.null is not None:
        deterministic = has_deterministic_kernels(config)
        for mode in config.modes:
            if deterministic:
                found.append(_server(config, folders, DRAFTED, mode, config.tp, gamma, prompts, deterministic=True))
            found.append(_server(config, folders, NULL, mode, config.tp, gamma, prompts, deterministic=deterministic))
    return tuple(_over_nodes(config, index, server) for index, server in enumerate(found))


def _over_nodes(config: SmokeConfig, index: int, server: ServerConfig) -> ServerConfig:
    """The server over all machines; one whose ranks do not divide over them stays on machine 0."""
    nodes = config.servers.nodes
    if nodes is None or server.tp % nodes.count:
        return server
    return server.model_copy(update={"nodes": nodes.model_copy(update={"address": rendezvous(nodes, index)})})


def has_deterministic_kernels(config: SmokeConfig) -> bool:
    """Whether SGLang's deterministic inference exists for the device."""
    return config.device != "cpu"


def server_name(role: str, mode: str, tp: int, *, deterministic: bool = False) -> str:
    """Name of a server within a run."""
    return "-".join([role.replace(" ", "-"), mode, f"tp{tp}", *(["deterministic"] if deterministic else [])])


def control_name(config: SmokeConfig, mode: str) -> str:
    """The drafted server that the null draft is compared with."""
    return server_name(DRAFTED, mode, config.tp, deterministic=has_deterministic_kernels(config))


def limits(tokens: int, count: int) -> list[int]:
    """Ragged output lengths of the requests that run together: whole, and an eighth, two and three eighths less."""
    return [max(1, tokens - (index % 4) * (tokens // 8)) for index in range(count)]


def pool_tokens(gamma: int, prompts: Sequence[Prompt], tokens: int, concurrency: int) -> int:
    """Rows of the KV pool that `concurrency` of the longest requests need, with two blocks each to spare."""
    longest = max(len(prompt.input_ids) for prompt in prompts)
    return max(MIN_POOL_TOKENS, concurrency * (longest + tokens + 2 * (gamma + 1) + 8))


def _server(config: SmokeConfig, folders: Folders, role: Role, mode: str, tp: int, gamma: int, prompts: Sequence[Prompt], *, deterministic: bool = False) -> ServerConfig:
    chosen = config.servers
    draft = {DRAFTED: folders.draft, NULL: folders.null, PLAIN: None}[role]
    return ServerConfig(
        name=server_name(role, mode, tp, deterministic=deterministic),
        role=role,
        target=folders.target,
        draft=draft,
        mode="graph" if mode == "graph" else "eager",
        tp=tp,
        device=config.device,
        dtype=config.dtype,
        attention_backend=chosen.attention_backend or "triton",
        draft_attention_backend=(folders.null_backend if role == NULL and folders.null_backend else chosen.draft_attention_backend) if draft else None,
        deterministic=deterministic,
        max_running_requests=chosen.concurrency,
        max_total_tokens=pool_tokens(gamma, prompts, config.max_new_tokens, chosen.concurrency),
        memory_fraction=0.5 if config.device == "cpu" else MEMORY_FRACTION,
        words=(SLEEP, *chosen.words),
    )
