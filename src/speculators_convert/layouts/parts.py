"""Tensors to write, and the safetensors files that hold them.

Order of tensors in the output: wide elements first (so that each tensor starts at a multiple of its element size), then
by name. Files: one, or shards of at most 5 GB of tensor data filled in that order; a larger tensor has a shard of its
own. Both depend only on the tensors, so writing a rewritten draft again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speculators_convert.container.header import DTYPE_BITS, Tensor, encode, tensor_size_bytes
from speculators_convert.rewrite.plan import Copy, Dropped, Literal, OutputFile, OutputTensor, Segment, Text
from speculators_convert.spec import TensorRef

MAX_SHARD_BYTES = 5_000_000_000
METADATA = {"format": "pt"}


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor to write: what it is called, its shape, its bytes, and what they are made of."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    segments: tuple[Segment, ...]
    sources: tuple[str, ...]
    copied: bool = True
    why: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of data."""
        return tensor_size_bytes(self.dtype, self.shape)


def copied(role: str, ref: TensorRef, *, name: str | None = None, why: str = "") -> Part:
    """A tensor of the draft, byte for byte."""
    return Part(name or role, role, ref.dtype, ref.shape, (Copy(file=ref.file, start=ref.start, stop=ref.stop),), (source_name(ref),), why=why)


def source_name(ref: TensorRef, origin: str = "draft") -> str:
    """How a plan names a source tensor."""
    return f"{origin}:{ref.file}:{ref.name}"


def dropped(ref: TensorRef, why: str) -> Dropped:
    """A source tensor that is left out."""
    return Dropped(kind="tensor", name=f"{ref.file}:{ref.name}", why=why)


def weight_files(parts: Iterable[Part]) -> list[OutputFile]:
    """The safetensors files for `parts`."""
    shards: list[list[Part]] = []
    room = 0
    for part in sorted(parts, key=lambda item: (-DTYPE_BITS[item.dtype], item.name)):
        if not shards or part.size_bytes > room:
            shards.append([])
            room = MAX_SHARD_BYTES
        shards[-1].append(part)
        room -= part.size_bytes
    if len(shards) == 1:
        return [weight_file("model.safetensors", shards[0])]
    return [weight_file(f"model-{number:05d}-of-{len(shards):05d}.safetensors", shard) for number, shard in enumerate(shards, 1)]


def weight_file(path: str, parts: Sequence[Part], metadata: dict[str, str] | None = None, rank: int | None = None) -> OutputFile:
    """One safetensors file that holds `parts` in the given order."""
    header = encode((Tensor(part.name, part.dtype, part.shape, 0, part.size_bytes) for part in parts), METADATA if metadata is None else metadata)
    segments: list[Segment] = [Literal(data=header[:8]), Text(text=header[8:].decode())]
    tensors, position = list[OutputTensor](), len(header)
    for part in parts:
        stop = position + part.size_bytes
        segments.extend(part.segments)
        tensors.append(
            OutputTensor(
                name=part.name,
                role=part.role,
                dtype=part.dtype,
                shape=part.shape,
                start=position,
                stop=stop,
                made="copied" if part.copied else "computed",
                sources=part.sources,
                why=part.why,
            )
        )
        position = stop
    return OutputFile(path=path, size_bytes=position, segments=tuple(segments), tensors=tuple(tensors), rank=rank)
