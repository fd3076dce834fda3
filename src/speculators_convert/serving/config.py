"""What a server is started with. Values only; `command` makes words of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from speculators_convert.model import Model
from speculators_convert.results.smoke import Nodes

Role = Literal["drafted", "null draft", "plain"]
PLUGIN_VARIABLE, PLUGIN_GROUP, PLUGIN_NAME = "SGLANG_PLUGINS", "sglang.srt.plugins", "speculators_dspark"
"""Variable that selects plugins, and where this package's own is entered."""
SLEEP = "--sleep-on-idle"
"""An idle scheduler looks for requests without a pause, one core for each server and half of another for a second rank (1.0 and 1.5 cores measured
on a CPU server, 0.01 and 0.03 with this flag): servers that wait for each other must not take the cores of the one that is asked."""


class ServerConfig(Model):
    """One server, before it has ports."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="Also the name of its log and rows")
    role: Role
    target: str
    draft: str | None = None
    mode: Literal["eager", "graph"] = "eager"
    tp: int = Field(default=1, ge=1)
    device: str = "cuda"
    dtype: str = "bfloat16"
    attention_backend: str
    draft_attention_backend: str | None = None
    deterministic: bool = Field(default=False, description="Batch-invariant kernels: a token does not depend on who shares the batch")
    max_running_requests: int = Field(default=8, ge=1)
    max_total_tokens: int = Field(default=8192, ge=1, description="Rows of the KV pool")
    memory_fraction: float = Field(default=0.6, gt=0, lt=1)
    gpus: tuple[int, ...] | None = Field(default=None, description="CUDA devices that it may see; None is all")
    nodes: Nodes | None = None
    words: tuple[str, ...] = Field(default=(), description="Further words of the command line, last")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables beside the inherited ones")
