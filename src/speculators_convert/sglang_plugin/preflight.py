"""What must hold before SGLang may load a draft. Reads headers and tables only: no torch, no SGLang, no checkpoint code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.errors import RefusedError
from speculators_convert.findings import Problem
from speculators_convert.formats import detect
from speculators_convert.sources import LocalSource
from speculators_convert.spec import D2T, DraftSpec, Settings, expected_shapes, known
from speculators_convert.vocabulary import VocabularyTables, read_tables

TAPS_LAST_LAYER = frozenset({
    "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "GptOssForCausalLM", "LagunaForCausalLM", "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM",
})  # fmt: skip
"""Target classes of SGLang 0.5.23 that also capture after their last layer; the others capture before a layer only."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the launch knows of the target model."""

    name: str
    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft that SGLang can load: its normal form and its vocabulary tables."""

    spec: DraftSpec
    tables: VocabularyTables


def read_draft(folder: Path) -> Draft:
    """The draft in `folder`; `RefusedError` names the first thing that SGLang would get wrong."""
    checkpoint = collect(LocalSource(folder))
    _refuse(_faults(checkpoint), folder)
    detection = detect(checkpoint)
    if detection.format is None:
        raise RefusedError("the format is not recognised", where=str(folder))
    reading = detection.format.read(checkpoint, Settings())
    _refuse(iter(reading.problems), folder)
    draft = Draft(reading.spec, read_tables(checkpoint))
    for problems in (_geometry(draft.spec), _backbone(draft.spec), _tensors(draft.spec), _vocabulary(draft)):
        _refuse(problems, folder)
    return draft


def check_target(spec: DraftSpec, target: Target, folder: Path) -> None:
    """`RefusedError` when the draft does not belong to this target or taps what SGLang cannot capture there."""
    _refuse(_pairing(spec, target), folder)


def target_ids(draft: Draft) -> NDArray[np.int64] | None:
    """Target id of each draft id, [draft_vocab]; None for a full vocabulary."""
    return draft.tables.targets(D2T.OFFSET) if draft.spec.reduced_vocabulary else None


def _faults(checkpoint: Checkpoint) -> Iterator[Problem]:
    for fault in checkpoint.faults:
        yield Problem(fault.message, subject=fault.tensor or fault.file, measured=fault.measured, expected=fault.expected)


def _geometry(spec: DraftSpec) -> Iterator[Problem]:
    gamma = known(spec.gamma, "gamma")
    anchor = known(spec.anchor, "sample_from_anchor")
    if spec.speculative_tokens not in (None, gamma):
        expected = f"{gamma}, from block_size and an anchor that is {anchor.value}"
        yield Problem("speculative_tokens contradicts block_size and sample_from_anchor", subject="config.json", measured=spec.speculative_tokens, expected=expected)
    if gamma < 1:
        yield Problem("the block drafts no token", subject="block_size", measured=gamma, expected="at least 1 drafted token")


def _backbone(spec: DraftSpec) -> Iterator[Problem]:
    if spec.markov is None or not spec.markov.rank:
        yield Problem("SGLang serves no DSpark draft without a Markov head", subject="markov_rank", measured="no head", expected="a Markov head")
    if spec.target_hidden_size not in (None, spec.hidden_size):
        yield Problem("SGLang needs a draft as wide as its target", subject="target_hidden_size", measured=spec.target_hidden_size, expected=spec.hidden_size)
    if spec.hidden_act != "silu":
        yield Problem("SGLang's draft layers know one activation", subject="hidden_act", measured=spec.hidden_act, expected="silu")
    ids = known(spec.target_layer_ids, "aux_hidden_state_layer_ids")
    if ids[0] < 0:
        yield Problem("SGLang cannot capture the target's embeddings", subject="aux_hidden_state_layer_ids", measured=min(ids) + 1, expected="ids of at least 1")
    if list(ids) != sorted(set(ids)):
        yield Problem("SGLang hands the captured layers over in ascending order", subject="aux_hidden_state_layer_ids", measured=[item + 1 for item in ids], expected="strictly ascending ids")


def _tensors(spec: DraftSpec) -> Iterator[Problem]:
    if spec.unknown_tensors:
        yield Problem("tensors that are no part of a DSpark draft", subject="weights", measured=", ".join(spec.unknown_tensors[:5]), expected="none")
    if spec.reduced_vocabulary and "d2t" not in spec.tensors:
        yield Problem("a reduced vocabulary without a mapping", subject="d2t", measured="missing", expected=f"[{spec.draft_vocab_size}] offsets")
    for role, shape in expected_shapes(spec).items():
        ref = spec.tensors.get(role)
        if ref is None and role != "t2d":
            yield Problem("a tensor is missing", subject=role, measured="missing", expected=f"shape {list(shape)}")
        elif ref is not None and (len(ref.shape) != len(shape) or any(want not in (None, have) for want, have in zip(shape, ref.shape, strict=True))):
            yield Problem("a tensor has another shape than the config and the other tensors ask for", subject=role, measured=list(ref.shape), expected=list(shape))


def _vocabulary(draft: Draft) -> Iterator[Problem]:
    spec, targets = draft.spec, target_ids(draft)
    if not spec.reduced_vocabulary:
        return
    if targets is None or targets.shape != (spec.draft_vocab_size,):
        yield Problem("the mapping has the wrong shape or type", subject="d2t", measured=None if targets is None else list(targets.shape), expected=f"[{spec.draft_vocab_size}] integers")
        return
    vocab = known(spec.target_vocab_size, "vocab_size")
    outside = int(np.count_nonzero((targets < 0) | (targets >= vocab)))
    if outside:
        yield Problem("the mapping leaves the target vocabulary", subject="d2t", measured=f"{outside} ids, from {targets.min()} to {targets.max()}", expected=f"0 to {vocab - 1}")
    elif not bool(np.all(np.diff(targets) > 0)):
        yield Problem("the mapping is not strictly ascending", subject="d2t", measured=f"{int(np.count_nonzero(np.diff(targets) <= 0))} steps back", expected="arange + d2t ascending")
    members = draft.tables.members()
    if members is not None and not outside and not np.array_equal(members, targets):
        yield Problem("d2t and t2d name different tokens", subject="t2d", measured=f"{members.size} members", expected="the ids arange + d2t")


def _pairing(spec: DraftSpec, target: Target) -> Iterator[Problem]:
    if spec.target_vocab_size != target.vocab_size:
        yield Problem("the draft was made for another target vocabulary", subject="vocab_size", measured=spec.target_vocab_size, expected=f"{target.vocab_size}, that of {target.name}")
    if spec.hidden_size != target.hidden_size:
        yield Problem("the draft was made for another target width", subject="hidden_size", measured=spec.hidden_size, expected=f"{target.hidden_size}, that of {target.name}")
    last = max(known(spec.target_layer_ids, "aux_hidden_state_layer_ids"))
    limit = target.num_hidden_layers - (0 if target.architecture in TAPS_LAST_LAYER else 1)
    if last >= limit:
        yield Problem(
            f"SGLang cannot capture this layer of {target.architecture}", subject="aux_hidden_state_layer_ids", measured=last + 1,
            expected=f"ids up to {limit} for a target of {target.num_hidden_layers} layers",
        )  # fmt: skip


def _refuse(problems: Iterator[Problem], folder: Path) -> None:
    first = next(problems, None)
    if first is not None:
        where = f"{folder}: {first.subject}" if first.subject else str(folder)
        raise RefusedError(first.message, where=where, measured=first.measured, expected=first.expected, hint="run `spec-convert inspect` on the draft for all findings")
