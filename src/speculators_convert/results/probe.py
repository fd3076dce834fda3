"""Options and result of `probe`: values only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from speculators_convert.model import JsonValue, Model
from speculators_convert.results.smoke import DEVICES, DTYPES, CheckpointDigest

Interval = tuple[float, float]


class ProbeOptions(Model):
    """What a user may choose; None is decided from the machine and the checkpoint."""

    target: str | None = None
    prompts: tuple[str, ...] = Field(default=(), description="Prompt files; without one the built-in texts, through the target's tokenizer")
    dtype: str | None = Field(default=None, pattern=DTYPES, description="float32 on a CPU whatever the file says; the file's own on CUDA")
    device: str | None = Field(default=None, pattern=DEVICES)
    facts: tuple[str, ...] = Field(default=(), description="Only readings that differ in one of these facts; all when empty")


class HypothesisResult(Model):
    """One reading of the file, and how it drafts. Differences are to the reading called `as stated`; intervals are 95 % over the texts."""

    name: str
    fact: str = Field(description="The fact in which it departs from the file; empty for the file as it is")
    reading: str = Field(description="What it takes the fact to be")
    accepted: float | None = Field(description="Tokens per verify step on the target's own greedy continuations; None when it cannot be run")
    kl: float | None = Field(description="KL(target || draft) in nats at the first drafted token of blocks in the texts")
    difference: float | None = Field(description="Of `accepted`")
    interval: Interval | None
    kl_difference: float | None = Field(description="At the first drafted token where the two readings can differ")
    kl_interval: Interval | None
    verdict: Literal["best", "tie", "worse", "better", "impossible"]
    reason: str = ""


class ProbeResult(Model):
    """Which reading of a file drafts best, by how much, and whether that contradicts the file."""

    schema_version: Literal["1"] = "1"
    tool_version: str
    checkpoint: CheckpointDigest
    target: CheckpointDigest
    environment: dict[str, str]
    parameters: dict[str, JsonValue]
    texts: int = Field(description="Texts that were read for the divergence")
    continuations: int = Field(description="Continuations of the target that were decoded")
    hypotheses: tuple[HypothesisResult, ...]
    target_passes: int = Field(description="Forward passes of the target; they do not depend on the number of hypotheses")
    best: str = Field(description="Name of the best reading; the file's own unless another is better beyond the noise")
    contradicts: bool
    reasons: tuple[str, ...]
