"""What more than one layout refuses."""

from __future__ import annotations

import numpy as np

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.errors import RefusedError
from speculators_convert.spec import DraftSpec, expected_shapes
from speculators_convert.target.vocabulary import VocabularyTables

_WITHOUT_EFFECT = {
    "verifier_lm_head.": "a copy of the target's head, used in training only",
    "verifier_norm.": "a copy of the target's norm, used in training only",
    "rotary_emb.": "computed from the config",
}


def without_effect(name: str) -> str | None:
    """Why an unknown tensor can be left out; None when it could change the draft."""
    return next((why for prefix, why in _WITHOUT_EFFECT.items() if name.startswith(prefix)), None)


def demand_portable(spec: DraftSpec, checkpoint: Checkpoint, tables: VocabularyTables) -> None:
    """Refuse what no layout here can carry, and tensors that are not as the draft's own sizes ask for."""
    quantized = spec.quantization or ("quantization_config" if checkpoint.config.get("quantization_config") is not None else None)
    if quantized:
        hint = "normalize the unquantized draft"
        raise RefusedError("the draft is quantized, and no layout carries its scales", where="config.json", measured=quantized, expected="plain weights", hint=hint)
    if spec.attention_sinks:
        hint = "serve the file as it is"
        raise RefusedError("the draft has attention sink biases, and no layout carries them", where="config.json", measured="attention sinks", expected="none", hint=hint)
    if spec.bundled:
        found = f"{spec.bundled.stages} stages"
        raise RefusedError("the draft lies inside its target's files", where="config.json", measured=found, expected="a draft of its own", hint="serve the target as it is")
    _demand_known(spec)
    _demand_shapes(spec)
    _demand_identity(spec, tables)


def _demand_known(spec: DraftSpec) -> None:
    unsafe = [name for name in spec.unknown_tensors if without_effect(name) is None]
    if unsafe:
        raise RefusedError(
            "tensors that no DSpark layout has a place for",
            where=", ".join(unsafe[:3]) + (f" and {len(unsafe) - 3} more" if len(unsafe) > 3 else ""),
            measured=f"{len(unsafe)} unknown tensors",
            expected="only tensors of a DSpark draft",
            hint="leaving them out could change what the draft proposes; remove them from the source if they are not part of it",
        )


def demand_full_vocabulary(spec: DraftSpec, title: str) -> None:
    """Refuse a reduced vocabulary in a layout that has no place for d2t."""
    if spec.reduced_vocabulary:
        raise RefusedError(
            f"{title} has no reduced vocabulary",
            where="draft_vocab_size",
            measured=spec.draft_vocab_size,
            expected=f"{spec.target_vocab_size}, the target's",
            hint="use --layout speculators, or --layout sglang-dense --target REF, which writes it over the target's vocabulary",
        )


def _demand_shapes(spec: DraftSpec) -> None:
    """Refuse a draft whose tensors are not those that its own sizes ask for; a layout cuts and pads by these sizes."""
    for role, expected in expected_shapes(spec).items():
        ref = spec.tensors.get(role)
        found = ref.shape if ref else None
        fits = found is not None and len(found) == len(expected) and all(wanted in (None, size) for size, wanted in zip(found, expected, strict=True))
        if not fits:
            shown = "missing" if found is None else list(found)
            raise RefusedError("a tensor is not as the draft's sizes ask for", where=role, measured=shown, expected=list(expected), hint="run inspect: it lists all that is wrong")


TABLE_ROLES = ("d2t", "t2d")
NO_MAPPING = "the vocabulary is full, so there is nothing to map"


def _demand_identity(spec: DraftSpec, tables: VocabularyTables) -> None:
    """With a full vocabulary, a d2t table may only say that each id is itself; it is then left out."""
    targets = None if spec.reduced_vocabulary else tables.targets(spec.d2t)
    if targets is not None and not np.array_equal(targets, np.arange(targets.size)):
        raise RefusedError("d2t maps a full vocabulary to other ids", where="d2t", measured="a permutation or a mistake", expected="no table", hint="run inspect for the reason")
