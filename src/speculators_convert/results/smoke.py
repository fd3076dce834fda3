"""Configuration and result of a smoke run: values only, so that checks and the gate need no torch."""

from __future__ import annotations

from pydantic import Field

from speculators_convert.model import JsonValue, Model
from speculators_convert.spec import Anchor

DTYPES, DEVICES = "^(float32|bfloat16)$", "^(cpu|cuda)$"
"""What a user may state; a run records what was decided."""


class Prompt(Model):
    """One request: token ids, and the plain greedy continuation when the file brings one."""

    input_ids: tuple[int, ...] = Field(min_length=1)
    reference_output_ids: tuple[int, ...] | None = None


class Nodes(Model):
    """This machine's place among several that serve one model together."""

    count: int = Field(ge=2)
    rank: int = Field(ge=0)
    address: str = Field(description="HOST:PORT of node 0, the same on all")


class ServerOptions(Model):
    """Choices for an engine that is a server; None is decided from the machine."""

    attention_backend: str | None = None
    draft_attention_backend: str | None = None
    words: tuple[str, ...] = Field(default=(), description="Further words of each server's command line")
    concurrency: int = Field(default=8, ge=2, description="Requests at once in the second pass over the prompts")
    sampling_temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Of the sampled requests beside the greedy ones")
    control: bool = Field(default=True, description="Also serve the null draft, under deterministic inference where the device has it")
    parallel: int | None = Field(default=None, ge=1, description="Servers at once; as many as memory and cores allow when None")
    image: str | None = Field(default=None, description="Image file to ask a multimodal target about")
    nodes: Nodes | None = None
    out: str | None = Field(default=None, description="Folder of logs and rows, from which an interrupted run goes on")


class SmokeOptions(Model):
    """What a user may choose; None is decided from the machine and the checkpoint."""

    target: str | None = None
    engine: str = Field(default="auto", description="auto, reference or sglang")
    servers: ServerOptions = ServerOptions()
    modes: tuple[str, ...] | None = Field(default=None, description="eager, graph; both where SGLang runs on CUDA, else eager alone, when None")
    tp: int = Field(default=1, ge=1)
    prompts: str | None = Field(default=None, description="Prompt file; without it the built-in texts, through the target's tokenizer")
    max_new_tokens: int = Field(default=64, ge=1)
    batch_size: int = Field(default=1, ge=1)
    temperature: float = Field(default=0, ge=0, allow_inf_nan=False, description="0 is greedy; else both models are sampled at this temperature")
    seed: int = Field(default=0, ge=0, le=1 << 62)
    timeout_seconds: float = Field(default=3600, gt=0, description="After which the processes of a tensor-parallel run, or a server, are ended")
    dtype: str | None = Field(default=None, pattern=DTYPES, description="float32 on a CPU whatever the file says; the file's own on CUDA")
    device: str | None = Field(default=None, pattern=DEVICES)
    floor: float = Field(default=1.3, allow_inf_nan=False)
    expect: float | None = Field(default=None, allow_inf_nan=False)


class SmokeConfig(Model):
    """What to run. Paths are folders on this machine."""

    draft: str
    target: str
    engine: str = "reference"
    modes: tuple[str, ...] = ("eager",)
    tp: int = Field(default=1, ge=1)
    max_new_tokens: int = Field(default=64, ge=1)
    batch_size: int = Field(default=1, ge=1, description="Requests that share one step")
    temperature: float = Field(default=0, ge=0, allow_inf_nan=False, description="0 is greedy")
    seed: int = Field(default=0, ge=0, description="Request i is sampled with seed + i")
    timeout_seconds: float = Field(default=3600, gt=0, description="Of a tensor-parallel run; of a server from its start to its last answer")
    servers: ServerOptions = ServerOptions()
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


def run_name(mode: str, tp: int, concurrency: int = 1, temperature: float = 0) -> str:
    """How comparisons call a run."""
    return f"{mode} tp {tp}" + (f", {concurrency} at once" if concurrency > 1 else "") + (", sampled" if temperature else "")


class ModeResult(Model):
    """One mode of one engine."""

    mode: str
    tp: int
    temperature: float = Field(default=0, description="0 is greedy; a sampled run is judged by its distribution, and `exact` says nothing")
    concurrency: int = Field(default=1, description="Requests in flight at once")
    server: str | None = Field(default=None, description="Name of the server that was asked, for an engine that is one")
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

    @property
    def name(self) -> str:
        """Mode, degree, and what else sets this row apart."""
        return run_name(self.mode, self.tp, self.concurrency, self.temperature)


class Split(Model):
    """The first token at which one prompt's drafted output leaves the plain one."""

    prompt: int
    at: int = Field(description="Index into the output")
    plain_token: int | None = Field(description="None when the plain output ends here")
    drafted_token: int | None
    plain_gap_steps: float | None = Field(
        description="The target's logit of the plain token less that of the drafted one under plain decoding, in rounding steps of the dtype; None when an output ended"
    )
    block_gap_steps: float | None = Field(description="The same under block verification")
    verdict: str = Field(pattern="^(tie|defect)$")


class Equivalence(Model):
    """Drafted against plain greedy output of one mode: exact, ties (both gaps within the tolerance), defects."""

    mode: str
    tp: int
    dtype: str
    against: str = Field(default="plain", description="plain: ordinary decoding; null draft: plain greedy decoding through the verification path")
    concurrency: int = 1
    tolerance_steps: float
    exact: int
    ties: int
    defects: int
    splits: tuple[Split, ...]


class Sampled(Model):
    """Do the sampled tokens of one mode follow the target's distribution? Kolmogorov-Smirnov test of their places in it."""

    mode: str
    tp: int
    concurrency: int = 1
    temperature: float
    seed: int
    tokens: int
    p_value: float
    level: float


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


class ServerRecord(Model):
    """One server that a run started."""

    name: str
    role: str = Field(description="drafted, null draft or plain")
    command: tuple[str, ...]
    environment: dict[str, str] = Field(description="Variables that were set for it")
    start_seconds: float = Field(description="From its start to its first healthy answer")
    asked_seconds: float = Field(description="From there to the end of the last request")
    memory_bytes: int | None = Field(default=None, description="GPU memory that its processes held, over all GPUs, as the driver tells it; None on a CPU")
    log: str = Field(description="File, relative to the run's folder")


class Block(Model):
    """The draft block that ran, as the draft's own file or the user's settings have it; None where that is open."""

    anchor: Anchor | None
    gamma: int | None = Field(description="Draft tokens per block")
    query_slots: int | None = Field(description="Rows of one draft forward")
    facts: tuple[str, ...] = Field(default=(), description="Sentences about block, taps, vocabulary, heads and attention")


class EngineRun(Model):
    """What an engine measured; a tensor-parallel run of the reference engine hands it over as JSON."""

    modes: tuple[ModeResult, ...]
    environment: dict[str, str]
    comparisons: tuple[Comparison, ...]
    equivalence: tuple[Equivalence, ...]
    sampled: tuple[Sampled, ...] = ()
    servers: tuple[ServerRecord, ...] = ()


class SmokeResult(Model):
    """What `smoke` measured; also the evidence that `gate` takes."""

    schema_version: str = "1"
    tool_version: str
    checkpoint: CheckpointDigest
    target: CheckpointDigest | None
    engine: str
    engine_reason: str
    environment: dict[str, str]
    parameters: dict[str, JsonValue]
    modes: tuple[ModeResult, ...]
    comparisons: tuple[Comparison, ...]
    equivalence: tuple[Equivalence, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    servers: tuple[ServerRecord, ...] = ()
    geometry: Block | None = Field(default=None, description="None in results of versions that did not record it")
    verdict: str = Field(pattern="^(pass|fail|not-run)$")
    reasons: tuple[str, ...]
