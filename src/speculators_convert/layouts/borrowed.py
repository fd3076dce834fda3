"""Embedding and head for layouts that hold copies of the target's: from the draft when it has them, else from the target."""

from __future__ import annotations

from speculators_convert.checkpoint import Location
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.padding import width_bytes
from speculators_convert.layouts.parts import Part
from speculators_convert.rewrite.plan import Copy
from speculators_convert.spec import DraftSpec, known
from speculators_convert.target.pairing import Pairing

PLAIN = ("BF16", "F16", "F32")
BORROWED = ("embed_tokens.weight", "lm_head.weight")


def borrowed(spec: DraftSpec, role: str, pairing: Pairing | None) -> Part:
    """The first rows of the target's tensor for `role`, one for each id of the vocabulary."""
    location = target_tensor(spec, role, pairing)
    tensor, rows = location.tensor, known(spec.target_vocab_size, "vocab_size")
    stop = tensor.start + rows * tensor.shape[1] * width_bytes(tensor.dtype)
    source = f"target:{location.file}:{tensor.name}"
    return Part(
        role, role, tensor.dtype, (rows, tensor.shape[1]), (Copy(file=location.file, start=tensor.start, stop=stop, source="target"),), (source,), why="a copy of the target's"
    )


def target_tensor(spec: DraftSpec, role: str, pairing: Pairing | None) -> Location:
    """The target's tensor for `role`; `RefusedError` when it is not there or not plain rows as wide as the draft."""
    if pairing is None:
        raise RefusedError("this layout holds a copy of the target's weights, and the draft has none", where=role, measured="missing", expected="a copy", hint="pass --target REF")
    location = pairing.embed if role == "embed_tokens.weight" else pairing.head
    if location is None:
        raise RefusedError(
            "the target has no plain tensor for this", where=role, measured="missing: packed or quantized", expected="plain rows", hint="pass the unquantized target"
        )
    shape, rows, hidden = location.tensor.shape, known(spec.target_vocab_size, "vocab_size"), known(spec.hidden_size, "hidden_size")
    if location.tensor.dtype not in PLAIN or len(shape) != 2 or shape[0] < rows or shape[1] != hidden:
        raise RefusedError(
            "the target's tensor does not fit the draft",
            where=role,
            measured=f"{location.tensor.dtype} {list(shape)}",
            expected=f"plain, at least [{rows}, {hidden}]",
            hint="pass the target that the draft was trained for",
        )
    return location
