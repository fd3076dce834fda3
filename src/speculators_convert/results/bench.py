"""Options, raw rows, manifest and summary of a performance run: values only."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculators_convert.model import Model
from speculators_convert.results.smoke import DEVICES, DTYPES, CheckpointDigest

PLAIN, DRAFTED = "plain", "drafted"
"""Names of the arm without a draft and of the draft that the run is about."""
ArmName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


class BenchOptions(Model):
    """What a user may choose; None is decided from the machine."""

    target: str | None = None
    engine: str = "sglang"
    workload: str = "mt-bench"
    topic_limit: int | None = Field(default=None, ge=1, description="Requests of each topic; None takes all")
    also: tuple[tuple[ArmName, str], ...] = Field(default=(), description="Further drafts of the same run: name and reference")
    stock: tuple[str, ...] = Field(default=(), description="Names of arms that are served without this package's plugin")
    output_tokens: int = Field(default=128, ge=2)
    concurrency: tuple[int, ...] = Field(default=(1,), min_length=1)
    repeats: int = Field(default=3, ge=1, le=1000)
    warm_up: int = Field(default=4, ge=1, le=10_000, description="Unmeasured requests for each place of a phase")
    side_by_side: int = Field(default=1, ge=1, description="Servers that are started together; one at a time is asked")
    mode: str | None = Field(default=None, pattern="^(eager|graph)$")
    tp: int = Field(default=1, ge=1)
    device: str | None = Field(default=None, pattern=DEVICES)
    dtype: str | None = Field(default=None, pattern=DTYPES)
    attention_backend: str | None = None
    draft_attention_backend: str | None = None
    server_words: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=900, gt=0, description="For one server, from its start to its last answer")
    budget_seconds: float | None = Field(default=None, gt=0, description="No server is started that might end later than this")


class Arm(Model):
    """One of the things compared: the target alone, or with a draft."""

    name: ArmName
    draft: CheckpointDigest | None
    plugin: bool = Field(default=True, description="Whether SGLang may load this package's plugin; engines without plugins ignore it")


class SkippedRequest(Model):
    """A request of the workload that the target has no room for."""

    name: str
    input_tokens: int
    reason: str


class WorkloadRecord(Model):
    """What was asked: `digest` names the token ids of all requests in order."""

    name: str
    digest: str
    requests: int
    skipped: tuple[SkippedRequest, ...]


class Step(Model):
    """One server of the run, in the order in which they are asked."""

    index: int
    repeat: int
    arm: str


class BenchPlan(Model):
    """All that is decided before the first server starts. A run is resumed only under an equal plan."""

    schema_version: str = "1"
    tool_version: str
    package_digest: str = Field(description="SHA-256 over the package's own Python files")
    engine: str
    target: CheckpointDigest
    arms: tuple[Arm, ...]
    workload: WorkloadRecord
    output_tokens: int
    concurrency: tuple[int, ...]
    repeats: int
    warm_up: int
    side_by_side: int
    settings: dict[str, str] = Field(description="Mode, device, dtype, attention back ends and further words of the server")
    environment: dict[str, str] = Field(description="Versions, GPUs, and variables that steer the engine")
    steps: tuple[Step, ...]


class RequestRow(Model):
    """One measured request. Times are nanoseconds since the phase began, on the client's steady clock."""

    concurrency: int
    request: str
    input_tokens: int
    output_tokens: int
    begin_ns: int = Field(description="Before the request is written")
    first_ns: int = Field(description="First event that brings a token")
    last_ns: int = Field(description="Last event that brings a token")
    end_ns: int = Field(description="The answer is complete")
    first_tokens: int = Field(description="Tokens that the first such event brings")
    events: int = Field(description="Events that bring tokens")
    verify_steps: int = Field(description="The server's own counter; 0 without a draft")
    accepted: int = Field(description="The server's own counter of accepted draft tokens")
    drafted: int = Field(description="The server's own counter of proposed draft tokens")
    histogram: tuple[int, ...] = Field(description="The server's own count of steps by number of accepted draft tokens")
    output_sha256: str = Field(description="Over the canonical JSON of the output's token ids")


class ServerRun(Model):
    """One finished server: what was started, and the digests of what it left."""

    schema_version: str = "1"
    step: Step
    command: tuple[str, ...]
    variables: dict[str, str]
    group: tuple[int, ...] = Field(description="Steps whose servers were up at the same time")
    start_seconds: float
    asked_seconds: float
    rows_sha256: str
    log_sha256: str


class ServerEntry(Model):
    """A server's place in the manifest."""

    folder: str
    record_sha256: str
    rows_sha256: str
    log_sha256: str


class BenchManifest(Model):
    """Binds plan, requests, rows, logs and summary: a change to any of them changes a digest here."""

    schema_version: str = "1"
    plan_sha256: str
    workload_sha256: str
    servers: tuple[ServerEntry, ...]
    summary_sha256: str


class Distribution(Model):
    """Times in milliseconds over all requests of all repeats. Percentiles are observed values (nearest rank): under 100 requests the 99th is the largest."""

    count: int
    mean: float
    p50: float
    p99: float
    curve: tuple[float, ...] = Field(description="Percentiles 0, 5, ..., 100")


class Acceptance(Model):
    """From the server's raw counters, summed over all requests of all repeats."""

    verify_steps: int
    accepted: int
    drafted: int
    length: float = Field(description="Accepted plus bonus tokens for each verify step")
    rate: float = Field(description="Accepted over proposed draft tokens")
    histogram: tuple[int, ...]


class ArmResult(Model):
    """One arm at one concurrency."""

    arm: str
    requests: int
    output_tokens: int
    throughput: tuple[float, ...] = Field(description="Output tokens per second, for each repeat: from the first request's begin to the last one's end")
    throughput_median: float
    end_to_end: Distribution
    time_to_first_token: Distribution
    time_per_output_token: Distribution
    steps: int = Field(description="Prefills and verify steps, or tokens without a draft: the events that a client sees when none are merged on the way")
    events: int = Field(description="Token-bearing events that came; when much fewer than steps, the client or server was short of processors and times per token are coarse")
    step_ms: float = Field(description="Milliseconds from first to last token-bearing event over verify steps, or over tokens without a draft; all requests of all repeats")
    acceptance: Acceptance | None
    outputs_equal: int = Field(description="Requests whose output is the same in each repeat")
    outputs_plain: int = Field(description="Requests whose output is the target's own in each repeat")


class Change(Model):
    """One metric of one arm against another, paired within each repeat."""

    metric: str
    arm: str
    against: str = Field(description="The target alone; for a further draft also the draft that the run is about")
    ratios: tuple[float, ...] = Field(description="Arm over the other, for each repeat")
    median: float
    low: float
    high: float
    verdict: str = Field(pattern="^(better|worse|unclear)$", description="Better or worse when two repeats or more all agree")


class ConcurrencyResult(Model):
    """All arms at one concurrency."""

    concurrency: int
    arms: tuple[ArmResult, ...]
    changes: tuple[Change, ...]


class BenchReport(Model):
    """The summary: a function of plan and raw rows alone."""

    schema_version: str = "1"
    plan: BenchPlan
    rows_sha256: tuple[str, ...]
    results: tuple[ConcurrencyResult, ...]
    regressions: tuple[str, ...] = Field(description="Each metric that is worse than the target alone, in every one of two repeats or more")
