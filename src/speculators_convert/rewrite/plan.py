"""A rewrite as a value: which bytes each output file is made of, where they come from, and the proof that nothing is left out.

A plan is pure and complete: `write` follows it without a decision of its own, and `--dry-run` prints it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal as Kind

from pydantic import Field, model_validator

from speculators_convert.container.header import HeaderFault, tensor_size_bytes
from speculators_convert.model import Model, canonical_json, sha256_hex
from speculators_convert.rewrite.rank_manifest import RankManifest
from speculators_convert.rewrite.segments import Copy, Gather, Literal, Origin, Piece, Rows, Segment, Text


class OutputTensor(Model):
    """One tensor of an output file; `start` and `stop` are byte offsets in that file."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    made: Kind["copied", "computed"]
    sources: tuple[str, ...] = Field(description="Source tensors that it is made of, as origin:file:name")
    why: str = ""


class OutputFile(Model):
    """One output file: segments laid end to end, and the tensors in it, if it holds any."""

    path: str
    size_bytes: int
    segments: tuple[Segment, ...]
    tensors: tuple[OutputTensor, ...] = ()
    rank: int | None = Field(default=None, description="The tensor-parallel rank that the file is for, when there is one file per rank")

    @model_validator(mode="after")
    def _covered(self) -> OutputFile:
        problem = cover_problem(self.size_bytes, self.segments, self.tensors)
        if problem:
            raise ValueError(f"{self.path}: {problem}")
        return self


class Dropped(Model):
    """Something in the source that the output does not hold, and why."""

    kind: Kind["file", "tensor", "metadata"]
    name: str
    why: str


class InputFile(Model):
    """A source file that the plan reads or looked at, with the digest that its source publishes."""

    path: str
    size_bytes: int
    sha256: str | None = None
    source: Origin = "draft"


class Input(Model):
    """A source: a folder's last name or a repository, and the commit if there is one."""

    kind: str
    name: str
    revision: str | None = None


class RewritePlan(Model):
    """All that a rewrite will write and leave out."""

    schema_version: str = "1"
    layout: str
    source: Input
    target: Input | None = None
    inputs: tuple[InputFile, ...]
    files: tuple[OutputFile, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = Field(default=(), description="What a user of the output should know")
    ranks: RankManifest | None = Field(default=None, description="Which rows each rank holds, when heads are split; the writer adds the digests and writes it as a file")

    @property
    def size_bytes(self) -> int:
        """Bytes of all output files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 of the plan's canonical JSON."""
        return sha256_hex(canonical_json(self.model_dump(mode="json")))

    def tensors(self) -> tuple[OutputTensor, ...]:
        """The tensors of all files, in file order."""
        return tuple(tensor for file in self.files for tensor in file.tensors)

    @model_validator(mode="after")
    def _nothing_twice(self) -> RewritePlan:
        paths = Counter(file.path for file in self.files)
        names = Counter((file.rank, tensor.name) for file in self.files for tensor in file.tensors)
        twice = [path for path, count in paths.items() if count > 1] + [name for (_, name), count in names.items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]} would be written twice")
        return self


def cover_problem(size_bytes: int, segments: Iterable[Segment], tensors: Iterable[OutputTensor]) -> str:
    """Why segments and tensors do not cover a file exactly; empty when they do."""
    position, edges = 0, {0}
    for segment in segments:
        position += segment.size_bytes
        edges.add(position)
    if position != size_bytes:
        return f"the segments give {position} bytes, the file has {size_bytes}"
    end: int | None = None
    for tensor in tensors:
        problem = _tensor_problem(tensor, edges, end)
        if problem:
            return f"{tensor.name} {problem}"
        end = tensor.stop
    return "" if end is None or end == size_bytes else f"{size_bytes - end} bytes follow the last tensor"


def _tensor_problem(tensor: OutputTensor, edges: set[int], end: int | None) -> str:
    if end is not None and tensor.start != end:
        return f"starts at {tensor.start}, the tensor before it ends at {end}"
    if tensor.start not in edges or tensor.stop not in edges:
        return "does not begin and end with a segment"
    try:
        expected = tensor_size_bytes(tensor.dtype, tensor.shape)
    except HeaderFault as fault:
        return fault.message
    size = tensor.stop - tensor.start
    return f"has {size} bytes, {tensor.dtype} {list(tensor.shape)} needs {expected}" if size != expected else ""


def unaccounted(plan: RewritePlan, source_tensors: Iterable[str]) -> tuple[str, ...]:
    """Source tensors (`file:name`) that the plan neither uses nor names as left out."""
    used = {source for tensor in plan.tensors() for source in tensor.sources} | {f"draft:{item.name}" for item in plan.dropped if item.kind == "tensor"}
    return tuple(sorted(name for name in source_tensors if f"draft:{name}" not in used))


__all__ = [
    "Copy", "Dropped", "Gather", "Input", "InputFile", "Literal", "Origin", "OutputFile", "OutputTensor", "Piece", "RewritePlan", "Rows", "Segment", "Text",
    "cover_problem", "unaccounted",
]  # fmt: skip
