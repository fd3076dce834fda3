"""Whether two checkpoints are the same draft: facts by meaning, tensors by role, shape and digest, vocabularies by mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speculators_convert.model import JsonValue, Model
from speculators_convert.spec import DraftSpec
from speculators_convert.target.vocabulary import VocabularyTables

NOT_MEANING = frozenset(
    {"format", "tensors", "unknown_tensors", "evidence", "producer_version", "num_target_layers", "speculative_tokens", "d2t", "rope", "verifier", "bundled", "query_slots"}
)
"""Fields of the normal form that describe the file, not the draft, or that are compared in another way."""
TABLES = frozenset({"d2t", "t2d"})
TARGETS_OWN = ("embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class Side:
    """One checkpoint, read: its normal form, its tables, and the digest of each tensor by role."""

    spec: DraftSpec
    tables: VocabularyTables
    digests: Mapping[str, str]


class Difference(Model):
    """One thing that differs, with both values."""

    kind: Literal["fact", "tensor", "vocabulary"]
    name: str
    left: str
    right: str


class DiffResult(Model):
    """The outcome; `same` is true only when nothing differs."""

    schema_version: str = "1"
    same: bool
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = Field(default=(), description="What differs without making it another draft")


def compare(left: Side, right: Side) -> DiffResult:
    """All differences, facts first."""
    differences = (*_facts(left.spec, right.spec), *_tensors(left, right), *_vocabulary(left, right))
    return DiffResult(same=not differences, differences=differences, notes=tuple(_notes(left, right)))


def meaning(spec: DraftSpec) -> dict[str, JsonValue]:
    """The facts of a draft, free of spelling and place. A default rope needs no scaling; a layer that does not slide needs no window."""
    facts: dict[str, JsonValue] = {name: value for name, value in spec.model_dump(mode="json").items() if name not in NOT_MEANING}
    facts["rope_theta"], facts["rope_type"] = spec.rope.theta, spec.rope.type
    facts["rope_scaling"] = spec.rope.scaling if spec.rope.type != "default" else {}
    facts["verifier"] = spec.verifier.name_or_path
    sliding = "sliding_attention" in (facts["layer_types"] or [])
    facts["sliding_window"] = spec.sliding_window if sliding else None
    facts["sliding_causal"] = spec.sliding_causal if sliding else None
    facts["unknown_tensors"] = list(spec.unknown_tensors)
    return facts


def _facts(left: DraftSpec, right: DraftSpec) -> list[Difference]:
    mine, theirs = meaning(left), meaning(right)
    return [Difference(kind="fact", name=name, left=_text(mine[name]), right=_text(theirs[name])) for name in sorted(mine) if mine[name] != theirs[name]]


def _tensors(left: Side, right: Side) -> list[Difference]:
    """Copies of the target's weights count only where both sides have one."""
    found = []
    for role in sorted((set(left.spec.tensors) | set(right.spec.tensors)) - TABLES):
        mine, theirs = _shown(left, role), _shown(right, role)
        owned = role in TARGETS_OWN and (role == TARGETS_OWN[0] or not (left.spec.reduced_vocabulary or right.spec.reduced_vocabulary))
        if mine != theirs and not (owned and "absent" in (mine, theirs)):
            found.append(Difference(kind="tensor", name=role, left=mine, right=theirs))
    return found


def _shown(side: Side, role: str) -> str:
    ref = side.spec.tensors.get(role)
    return f"{ref.dtype} {list(ref.shape)} sha256:{side.digests[role]}" if ref else "absent"


def _vocabulary(left: Side, right: Side) -> list[Difference]:
    """Target id of each draft row, whether the table holds offsets or ids."""
    mine, theirs = (side.tables.targets(side.spec.d2t) for side in (left, right))
    if _same(mine, theirs):
        return []
    if mine is None or theirs is None or mine.size != theirs.size:
        return [Difference(kind="vocabulary", name="d2t", left=_size(mine), right=_size(theirs))]
    rows = np.flatnonzero(mine != theirs)
    first = int(rows[0])
    return [Difference(kind="vocabulary", name="d2t", left=f"{rows.size} rows differ; row {first} is target id {mine[first]}", right=f"row {first} is target id {theirs[first]}")]


def _same(mine: NDArray[np.int64] | None, theirs: NDArray[np.int64] | None) -> bool:
    if mine is None or theirs is None:
        return mine is None and theirs is None
    return np.array_equal(mine, theirs)


def _size(targets: NDArray[np.int64] | None) -> str:
    return "no table: draft ids are target ids" if targets is None else f"{targets.size} rows"


def _notes(left: Side, right: Side) -> list[str]:
    pairs = [
        ("format", left.spec.format, right.spec.format),
        ("producer version", left.spec.producer_version, right.spec.producer_version),
        ("target depth", left.spec.num_target_layers, right.spec.num_target_layers),
    ]
    notes = [f"{name}: {mine or 'not stated'}, {theirs or 'not stated'}" for name, mine, theirs in pairs if mine != theirs]
    for role in TARGETS_OWN:
        if (role in left.spec.tensors) != (role in right.spec.tensors) and not left.spec.reduced_vocabulary:
            notes.append(f"{role}: only one side holds a copy; it belongs to the target")
    return notes


def _text(value: JsonValue) -> str:
    return "not stated" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
