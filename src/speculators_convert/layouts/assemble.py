"""From tensors and a config to a plan: order, sharding, headers, index, side files. All layouts share it.

Order of tensors in the output: wide elements first (so that each tensor starts at a multiple of its element size), then
by name. Files: one, or shards of at most 5 GB of tensor data filled in that order; a larger tensor has a shard of its
own. Both depend only on the tensors, so writing a rewritten draft again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.container.header import DTYPE_BITS, Tensor, encode, tensor_size_bytes
from speculators_convert.container.index import INDEX_NAME, encode_index
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.side_files import side_files
from speculators_convert.model import JsonValue, pretty_json
from speculators_convert.plan import Copy, Dropped, Gather, Input, InputFile, Literal, OutputFile, OutputTensor, RewritePlan, Rows, Segment, Text, unaccounted
from speculators_convert.sources import SourceId
from speculators_convert.spec import DraftSpec, TensorRef

MAX_SHARD_BYTES = 5_000_000_000
METADATA = {"format": "pt"}
_WITHOUT_EFFECT = {
    "verifier_lm_head.": "a copy of the target's head, used in training only",
    "verifier_norm.": "a copy of the target's norm, used in training only",
    "rotary_emb.": "computed from the config",
}


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


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a rewrite that a layout decides."""

    layout: str
    config: dict[str, JsonValue]
    parts: Sequence[Part]
    dropped: Sequence[Dropped] = ()
    notes: Sequence[str] = ()


def assemble(draft: Draft, spec: DraftSpec, checkpoint: Checkpoint, *, target: Checkpoint | None = None) -> RewritePlan:
    """The whole plan; it accounts for each file and tensor of the source."""
    refuse_unportable(spec, checkpoint)
    copies, left_out = side_files(checkpoint)
    weights = weight_files(draft.parts)
    config = OutputFile(path="config.json", **_text(pretty_json(draft.config)))
    unused = [*draft.dropped, *_unknown(spec, checkpoint), *left_out, *_metadata(checkpoint)]
    plan = RewritePlan(
        layout=draft.layout,
        source=_input(checkpoint.id),
        target=_input(target.id) if target else None,
        inputs=(*_inputs(checkpoint), *_read_of(target, weights)),
        files=tuple(sorted((config, *weights, *_index(weights), *copies), key=lambda file: file.path)),
        dropped=tuple(sorted(unused, key=lambda item: (item.kind, item.name))),
        notes=tuple(draft.notes),
    )
    missing = unaccounted(plan, (f"{location.file}:{name}" for name, location in checkpoint.tensors.items()))
    if missing:
        raise AssertionError(f"the layout forgot {missing[0]}")
    return plan


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


def refuse_unportable(spec: DraftSpec, checkpoint: Checkpoint) -> None:
    """Refuse what no layout here can carry: scales of quantized weights, sink biases, a draft inside its target."""
    quantized = spec.quantization or ("quantization_config" if checkpoint.config.get("quantization_config") is not None else None)
    if quantized:
        raise RefusedError(
            "the draft is quantized, and no layout carries its scales", where="config.json", measured=quantized, expected="plain weights", hint="normalize the unquantized draft"
        )
    if spec.attention_sinks:
        raise RefusedError(
            "the draft has attention sink biases, and no layout carries them", where="config.json", measured="attention sinks", expected="none", hint="serve the file as it is"
        )
    if spec.bundled:
        raise RefusedError(
            "the draft lies inside its target's files",
            where="config.json",
            measured=f"{spec.bundled.stages} stages",
            expected="a draft of its own",
            hint="serve the target as it is",
        )


def _text(text: str) -> dict[str, JsonValue]:
    return {"size_bytes": len(text.encode()), "segments": (Text(text=text),)}


def _index(weights: Sequence[OutputFile]) -> list[OutputFile]:
    if len(weights) < 2:
        return []
    tensors = [(tensor, file.path) for file in weights for tensor in file.tensors]
    document = encode_index({tensor.name: path for tensor, path in tensors}, sum(tensor.stop - tensor.start for tensor, _ in tensors))
    return [OutputFile(path=INDEX_NAME, **_text(pretty_json(document)))]


def _unknown(spec: DraftSpec, checkpoint: Checkpoint) -> list[Dropped]:
    """Unknown tensors that are known to be without effect; `RefusedError` for any other, because leaving it out could change the draft."""
    unsafe = [name for name in spec.unknown_tensors if not name.startswith(tuple(_WITHOUT_EFFECT))]
    if unsafe:
        shown = ", ".join(unsafe[:3]) + (f" and {len(unsafe) - 3} more" if len(unsafe) > 3 else "")
        raise RefusedError(
            "tensors that no DSpark layout has a place for",
            where=shown,
            measured=f"{len(unsafe)} unknown tensors",
            expected="only tensors of a DSpark draft",
            hint="leaving them out could change what the draft proposes; remove them from the source if they are not part of it",
        )
    reasons = {name: next(why for prefix, why in _WITHOUT_EFFECT.items() if name.startswith(prefix)) for name in spec.unknown_tensors}
    return [Dropped(kind="tensor", name=f"{checkpoint.tensors[name].file}:{name}", why=why) for name, why in reasons.items()]


def _metadata(checkpoint: Checkpoint) -> list[Dropped]:
    found = sorted({(path, key) for path, header in checkpoint.headers.items() for key, value in header.metadata.items() if METADATA.get(key) != value})
    return [Dropped(kind="metadata", name=f"{path}:{key}", why="header metadata is written anew") for path, key in found]


def _inputs(checkpoint: Checkpoint) -> list[InputFile]:
    return [InputFile(path=info.path, size_bytes=info.size_bytes, sha256=info.sha256) for info in checkpoint.files if not info.refused]


def _read_of(target: Checkpoint | None, weights: Sequence[OutputFile]) -> list[InputFile]:
    """The target's files that the plan reads; a comparison before the plan reads others, and changes nothing."""
    used = {segment.file for file in weights for segment in file.segments if isinstance(segment, Copy | Rows | Gather) and segment.source == "target"}
    return [item.model_copy(update={"source": "target"}) for item in _inputs(target) if item.path in used] if target else []


def _input(identity: SourceId) -> Input:
    """The source's name without the part that differs from machine to machine."""
    name = identity.name.rstrip("/").rpartition("/")[2] if identity.kind == "folder" else identity.name
    return Input(kind=identity.kind, name=name or identity.name, revision=identity.revision)
