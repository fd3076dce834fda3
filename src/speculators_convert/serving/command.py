"""The command line of an SGLang server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from speculators_convert.serving.config import ServerConfig


@dataclass(frozen=True, slots=True)
class Ports:
    """HTTP port, and the port over which ranks meet."""

    http: int
    ranks: int


def words(config: ServerConfig, ports: Ports) -> list[str]:
    """The server of `config` on the loopback; the flags are those of SGLang 0.5.23."""
    found = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", config.target, "--host", "127.0.0.1", "--port", str(ports.http),
        "--dtype", config.dtype, "--attention-backend", config.attention_backend, "--sampling-backend", "pytorch", "--tp-size", str(config.tp),
        "--max-running-requests", str(config.max_running_requests), "--max-total-tokens", str(config.max_total_tokens),
        "--mem-fraction-static", f"{config.memory_fraction:g}", "--disable-radix-cache", "--random-seed", "1", "--skip-server-warmup",
    ]  # fmt: skip
    if config.nodes is None:
        found += ["--nccl-port", str(ports.ranks)]
    else:
        found += ["--nnodes", str(config.nodes.count), "--node-rank", str(config.nodes.rank), "--dist-init-addr", config.nodes.address]
    if config.device == "cpu":
        found += ["--device", "cpu"]
    elif config.mode == "graph":
        found += ["--cuda-graph-max-bs-decode", str(config.max_running_requests)]
    else:
        found += ["--disable-cuda-graph"]
    if config.draft is not None:
        found += ["--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", config.draft]
        if config.draft_attention_backend is not None:
            found += ["--speculative-draft-attention-backend", config.draft_attention_backend]
    if config.deterministic:
        found += ["--enable-deterministic-inference"]
    return [*found, *config.words]


def variables(config: ServerConfig) -> dict[str, str]:
    """What is set for the server beside what it inherits."""
    found = dict(config.environment)
    if config.gpus is not None:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config.gpus))
    if config.device == "cpu":
        found.setdefault("SGLANG_USE_CPU_ENGINE", "1")
        found.setdefault("SGLANG_CPU_OMP_THREADS_BIND", "|".join(str(rank % (os.cpu_count() or 1)) for rank in range(config.tp)))
    return found


def surroundings(config: ServerConfig, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of the server; what the caller set wins over a default of ours."""
    own = variables(config)
    return {**inherited, **{name: value for name, value in own.items() if name in config.environment or name == "CUDA_VISIBLE_DEVICES" or name not in inherited}}
