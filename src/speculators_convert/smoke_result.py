"""Configuration and result of a smoke run: values only, so that checks and the gate need no torch."""

from __future__ import annotations

from pydantic import Field

from speculators_convert.model import JsonValue, Model


class Prompt(Model):
    """One request: token ids, and the plain greedy continuation when the file brings one."""

    input_ids: tuple[int, ...] = Field(min_length=1)
    reference_output_ids: tuple[int, ...] | None = None


class SmokeConfig(Model):
    """What to run. Paths are folders on this machine."""

    draft: str
    target: str
    engine: str = "reference"
    modes: tuple[str, ...] = ("eager",)
    tp: int = Field(default=1, ge=1)
    max_new_tokens: int = Field(default=64, ge=1)
    batch_size: int = Field(default=1, ge=1, description="Requests that share one step")
    dtype: str = "float32"
    device: str = "cpu"
    floor: float = Field(default=1.3, description="Acceptance length under which the run fails")
    expect: float | None = Field(default=None, description="Acceptance length that must be reached within `expect_tolerance`")
    expect_tolerance: float = 0.05


class PromptOutcome(Model):
    """One prompt: exact, or the index of the first differing token."""

    prompt: int
    exact: bool
    first_difference: int | None
    output_tokens: int
    verify_steps: int
    accepted_tokens: int


class ModeResult(Model):
    """One mode of one engine."""

    mode: str
    tp: int
    acceptance_length: float = Field(description="Accepted plus bonus tokens over verify steps, summed over prompts")
    acceptance_by_position: tuple[float, ...] = Field(description="Share of verify steps in which draft position k was accepted")
    verify_steps: int
    drafted_tokens: int
    accepted_tokens: int
    exact: int = Field(description="Prompts whose output equals target-only greedy decoding token for token")
    total: int
    seconds: float
    target_only_seconds: float
    outcomes: tuple[PromptOutcome, ...]


class CheckpointDigest(Model):
    """The bytes that ran: `digest` is the SHA-256 of the canonical JSON of `files` (path to SHA-256)."""

    digest: str
    files: dict[str, str]
    reference: str


class Comparison(Model):
    """One claim of the run, what was measured, and whether it holds."""

    name: str
    holds: bool
    measured: str
    expected: str


class SmokeResult(Model):
    """What `smoke` measured; also the evidence that `gate` takes."""

    schema_version: str = "1"
    tool_version: str
    checkpoint: CheckpointDigest
    target: CheckpointDigest
    engine: str
    engine_reason: str
    environment: dict[str, str]
    parameters: dict[str, JsonValue]
    modes: tuple[ModeResult, ...]
    comparisons: tuple[Comparison, ...]
    verdict: str = Field(pattern="^(pass|fail|not-run)$")
    reasons: tuple[str, ...]
