"""A full vocabulary cut down to some of the target's ids: gathered head rows and the two tables that map them."""

from __future__ import annotations

import numpy as np

from speculators_convert.errors import RefusedError
from speculators_convert.layouts.base import Kept
from speculators_convert.layouts.borrowed import target_tensor
from speculators_convert.layouts.padding import width_bytes
from speculators_convert.layouts.parts import Part, source_name
from speculators_convert.rewrite.plan import Gather, Literal
from speculators_convert.rewrite.runs import runs_of_ids
from speculators_convert.spec import D2T, DraftSpec, TensorRef, known
from speculators_convert.target.pairing import Pairing

GATHERED = ("lm_head.weight", "markov_head.markov_w2.weight")


def reduced_spec(spec: DraftSpec, kept: Kept) -> DraftSpec:
    """The normal form after the cut; `RefusedError` when there is nothing to cut."""
    if spec.reduced_vocabulary or {"d2t", "t2d"} & set(spec.tensors):
        raise RefusedError(
            "the draft's vocabulary is reduced already", where="draft_vocab_size", measured=spec.draft_vocab_size, expected=spec.target_vocab_size, hint="leave --reduce-vocab out"
        )
    return spec.model_copy(update={"draft_vocab_size": len(kept.target_ids), "d2t": D2T.OFFSET})


def reduced_parts(spec: DraftSpec, kept: Kept, pairing: Pairing | None) -> list[Part]:
    """Head, Markov output rows and tables of the kept ids. The head is the draft's own copy, or the target's."""
    rows = known(spec.target_vocab_size, "vocab_size")
    runs, count = runs_of_ids(kept.target_ids, rows), len(kept.target_ids)
    parts = []
    for role in GATHERED:
        if role == "markov_head.markov_w2.weight" and spec.markov is None:
            continue
        ref, origin = _rows(spec, role, pairing)
        gather = Gather(file=ref.file, start=ref.start, row_bytes=ref.shape[1] * width_bytes(ref.dtype), runs=runs, source="target" if origin == "target" else "draft")
        parts.append(Part(role, role, ref.dtype, (count, ref.shape[1]), (gather,), (source_name(ref, origin),), copied=False, why="the rows of the kept ids"))
    ids = np.array(kept.target_ids, "<i8")
    members = np.zeros(rows, np.uint8)
    members[ids] = 1
    tables = {"d2t": ("I64", (count,), (ids - np.arange(count)).astype("<i8").tobytes()), "t2d": ("BOOL", (rows,), members.tobytes())}
    parts += [Part(name, name, dtype, shape, (Literal(data=data),), (), copied=False, why=kept.why) for name, (dtype, shape, data) in tables.items()]
    return parts


def _rows(spec: DraftSpec, role: str, pairing: Pairing | None) -> tuple[TensorRef, str]:
    if role in spec.tensors:
        return spec.tensors[role], "draft"
    location = target_tensor(spec, role, pairing)
    tensor = location.tensor
    return TensorRef(file=location.file, name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, start=tensor.start, stop=tensor.stop), "target"
