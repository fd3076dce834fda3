"""What checks say: a `Problem` is made by a check, a `Finding` is a problem with its code and severity, a `Report` is what `inspect` returns."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from speculators_convert.model import Model, Severity
from speculators_convert.spec import DraftSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where (file, tensor, JSON pointer), what was measured and what was expected."""

    message: str
    subject: str = ""
    measured: object = None
    expected: object = None
    hint: str = ""
    file: str = ""
    pointer: str = ""
    severity: Severity | None = None


class Finding(Model):
    """A problem with its stable code."""

    code: str = Field(pattern=r"^DSP[0-9]{3}$")
    severity: Severity
    message: str
    subject: str = Field(description="Config key, tensor or file that is wrong")
    measured: str
    expected: str
    hint: str
    file: str = ""
    pointer: str = Field(default="", description="JSON pointer into `file`, when it is a JSON document")


class Skipped(Model):
    """A check that did not run, and why."""

    code: str
    reason: str


class SourceInfo(Model):
    """Which bytes were looked at."""

    kind: str
    name: str
    revision: str | None
    files: tuple[str, ...]
    total_bytes: int


class FormatInfo(Model):
    """The recognised packaging and why."""

    name: str
    title: str
    why: tuple[str, ...]


class TensorRow(Model):
    """One row of the tensor table."""

    role: str
    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


class SizeInfo(Model):
    """Bytes on disk, per tensor-parallel rank, and read per drafted block."""

    tensor_bytes: int
    per_rank_bytes: dict[str, int] = Field(description="TP degree to bytes per rank: heads, MLP and vocabulary rows split, norms, fc and markov_w1 replicated")
    read_per_block_bytes: int = Field(
        description="Backbone and head once, markov_w2 once per drafted token, one markov_w1 row per token, the head borrowed from the target included"
    )
    borrowed_head_bytes: int = Field(description="Part of read_per_block_bytes that lies in the target's lm_head")


class EngineVerdict(Model):
    """Whether one engine version reads the file as it is."""

    engine: str
    version: str
    verdict: str = Field(pattern="^(loads|needs-normalize|unsupported)$")
    refused: bool = Field(default=False, description="Unsupported because the engine is known to refuse the draft, or to serve it wrong; false when that is only not known")
    reasons: tuple[str, ...]
    launch: str = Field(description="Exact command; after the normalize step where one is needed")


class Report(Model):
    """What `inspect` found."""

    schema_version: str = "1"
    tool_version: str
    source: SourceInfo
    format: FormatInfo
    spec: DraftSpec | None
    geometry: tuple[str, ...]
    tensors: tuple[TensorRow, ...]
    size: SizeInfo | None
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    engines: tuple[EngineVerdict, ...]

    def worst(self) -> Severity | None:
        """The highest severity among the findings."""
        return max((finding.severity for finding in self.findings), key=lambda item: item.rank, default=None)
