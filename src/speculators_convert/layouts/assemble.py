"""From tensors and a config to a plan: weight files, config, index, side files, and the account of what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.container.index import INDEX_NAME, encode_index
from speculators_convert.layouts.parts import METADATA, Part, weight_files
from speculators_convert.layouts.refusals import without_effect
from speculators_convert.layouts.side_files import is_code, side_files
from speculators_convert.layouts.tp_heads import split
from speculators_convert.model import JsonValue, pretty_json
from speculators_convert.rewrite.plan import Copy, Dropped, Gather, Input, InputFile, OutputFile, RewritePlan, Rows, Text, unaccounted
from speculators_convert.sources import SourceId
from speculators_convert.spec import DraftSpec

AUTO_MAP = "auto_map"


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a rewrite that a layout decides."""

    layout: str
    config: dict[str, JsonValue]
    parts: Sequence[Part]
    dropped: Sequence[Dropped] = ()
    notes: Sequence[str] = ()
    tp: int | None = None
    """Split the heads over that many ranks."""
    copy_code: bool = False
    """Copy Python files; a layout that keeps `auto_map` has it in `config`."""


def assemble(draft: Draft, spec: DraftSpec, checkpoint: Checkpoint, *, target: Checkpoint | None = None) -> RewritePlan:
    """The whole plan; it accounts for each file and tensor of the source."""
    copies, left_out = side_files(checkpoint, copy_code=draft.copy_code)
    whole, shares, ranks = split(draft.parts, draft.tp) if draft.tp is not None else (draft.parts, [], None)
    weights = [*weight_files(whole), *shares]
    config = OutputFile(path="config.json", **_text(pretty_json(draft.config)))
    unused = [*draft.dropped, *_unknown(spec, checkpoint), *left_out, *_metadata(checkpoint), *_auto_map(draft, checkpoint)]
    plan = RewritePlan(
        layout=draft.layout,
        source=_input(checkpoint.id),
        target=_input(target.id) if target else None,
        inputs=(*_inputs(checkpoint), *_read_of(target, weights)),
        files=tuple(sorted((config, *weights, *_index([file for file in weights if file.rank is None]), *copies), key=lambda file: file.path)),
        dropped=tuple(sorted(unused, key=lambda item: (item.kind, item.name))),
        notes=(*draft.notes, *_code_notes(draft, copies)),
        ranks=ranks,
    )
    missing = unaccounted(plan, (f"{location.file}:{name}" for name, location in checkpoint.tensors.items()))
    if missing:
        raise AssertionError(f"the layout forgot {missing[0]}")
    return plan


def _text(text: str) -> dict[str, JsonValue]:
    return {"size_bytes": len(text.encode()), "segments": (Text(text=text),)}


def _index(weights: Sequence[OutputFile]) -> list[OutputFile]:
    if len(weights) < 2:
        return []
    tensors = [(tensor, file.path) for file in weights for tensor in file.tensors]
    document = encode_index({tensor.name: path for tensor, path in tensors}, sum(tensor.stop - tensor.start for tensor, _ in tensors))
    return [OutputFile(path=INDEX_NAME, **_text(pretty_json(document)))]


def _unknown(spec: DraftSpec, checkpoint: Checkpoint) -> list[Dropped]:
    """Unknown tensors; `demand_portable` has let only those pass that are without effect."""
    return [Dropped(kind="tensor", name=f"{checkpoint.tensors[name].file}:{name}", why=without_effect(name) or "") for name in spec.unknown_tensors]


def _metadata(checkpoint: Checkpoint) -> list[Dropped]:
    found = sorted({(path, key) for path, header in checkpoint.headers.items() for key, value in header.metadata.items() if METADATA.get(key) != value})
    return [Dropped(kind="metadata", name=f"{path}:{key}", why="header metadata is written anew") for path, key in found]


def _auto_map(draft: Draft, checkpoint: Checkpoint) -> list[Dropped]:
    if AUTO_MAP not in checkpoint.config or AUTO_MAP in draft.config:
        return []
    why = "the layout's config names no code" if draft.copy_code else "it names code to run; a rewrite carries none"
    return [Dropped(kind="metadata", name=f"config.json:{AUTO_MAP}", why=why)]


def _code_notes(draft: Draft, copies: Sequence[OutputFile]) -> Iterator[str]:
    """What was copied that a loader may run."""
    if not draft.copy_code:
        return
    code = [file.path for file in copies if is_code(file.path)]
    yield (
        f"code was copied byte for byte and not run: {', '.join(code)}; read it before a loader runs it"
        if code
        else "no code was copied: the source has no Python file beside its config"
    )
    if AUTO_MAP in draft.config:
        yield "auto_map was kept as it was: a loader that is told to trust remote code runs what it names"


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
