"""DSP1xx: the vocabulary tables `d2t` and `t2d` and the head rows that they select."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check
from speculators_convert.checks.places import listed
from speculators_convert.findings import Problem
from speculators_convert.model import Severity
from speculators_convert.spec import D2T, DraftSpec
from speculators_convert.target.pairing import Pairing
from speculators_convert.target.vocabulary import VocabularyTables

_TABLES = ("DSP102",)


@check("DSP101", "d2t and t2d are there exactly when the vocabulary is reduced", requires=(*UNREADABLE, "DSP304"))
def tables_present(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    A draft with fewer tokens than the target has both `d2t` and `t2d`; a draft over the full vocabulary has neither.

    ## Why it matters
        Without `d2t` an engine either refuses the file or keeps a table of zeros, which maps draft ids onto the first ids of the target: it drafts
    wrong tokens and says nothing. A table beside a full vocabulary makes some versions demand a reduced head.

    ## How to fix
    Save the draft again with the vocabulary mapping that it was trained with; the tables cannot be guessed from the weights without the target (with it, compare the head's rows).

    ## Reported in
    vllm-ascend#16166, vllm#55133
    """
    present = [name for name in ("d2t", "t2d") if name in spec.tensors]
    missing = [name for name in ("d2t", "t2d") if name not in spec.tensors]
    if spec.reduced_vocabulary:
        for name in missing:
            if name == "t2d" and checkpoint.gguf:
                continue  # a GGUF draft has only d2t
            yield Problem(
                f"a reduced vocabulary needs {name}", subject=name, measured="not in the file", expected=f"{spec.draft_vocab_size} of {spec.target_vocab_size} tokens mapped"
            )
    elif spec.draft_vocab_size is not None:
        for name in present:
            yield Problem(
                f"a full vocabulary must not carry {name}",
                subject=name,
                measured=spec.tensors[name].shape,
                expected="no table when draft and target vocabulary are equal",
                file=spec.tensors[name].file,
            )


@check("DSP102", "d2t is I64 with one entry per draft token")
def d2t_form(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `d2t` has dtype I64 and shape [draft_vocab_size].

    ## Why it matters
    Engines copy the table into an int64 parameter of that length. Another type is rounded or refused, another length shifts or drops tokens.

    ## How to fix
    Save the table as int64 of length draft_vocab_size.

    ## Reported in
    mobilint `build_eagle3_safetensors.py` (dtype, shape and length checks)
    """
    yield from _form(spec, "d2t", "I64", spec.draft_vocab_size)


@check("DSP103", "t2d is BOOL with one entry per target token")
def t2d_form(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `t2d` has dtype BOOL and shape [target_vocab_size].

    ## Why it matters
    It is a membership mask over the target's ids. A table of indices under that name selects other rows.

    ## How to fix
    Save the mask as bool of length target_vocab_size.

    ## Reported in
    speculators `train/vocab_mapping.py`; mobilint `build_eagle3_safetensors.py`
    """
    yield from _form(spec, "t2d", "BOOL", spec.target_vocab_size)


def _form(spec: DraftSpec, name: str, dtype: str, length: int | None) -> Iterator[Problem]:
    ref = spec.tensors.get(name)
    if ref is None or not spec.reduced_vocabulary:
        return
    if ref.dtype != dtype:
        yield Problem(f"{name} has the wrong dtype", subject=name, measured=ref.dtype, expected=dtype, file=ref.file)
    if len(ref.shape) != 1 or ref.shape[0] != length:
        yield Problem(f"{name} has the wrong shape", subject=name, measured=list(ref.shape), expected=[length], file=ref.file)


@check("DSP104", "d2t holds offsets, not absolute ids", requires=_TABLES)
def d2t_offsets(spec: DraftSpec, tables: VocabularyTables, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The target id of draft token i is i + d2t[i]. When the numbers only make sense as target ids themselves, the table is absolute.

    ## Why it matters
        Engines that read safetensors add the draft id (a llama.cpp GGUF holds absolute ids by design). An absolute table then proposes other tokens,
    past the vocabulary in its second half; the acceptance length falls to 1 without an error.

    ## How to fix
    Run `spec-convert normalize`, or subtract arange: d2t = ids - arange(draft_vocab_size).

    ## Reported in
    TorchSpec `tools/convert_to_hf.py` (trims the head by d2t as absolute while the table holds offsets)
    """
    if spec.reduced_vocabulary and not checkpoint.gguf and spec.d2t is D2T.ABSOLUTE and tables.d2t is not None and tables.d2t.size:
        evidence = next((item.source for item in spec.evidence if item.fact == "d2t"), "")
        yield Problem(
            "d2t holds absolute target ids",
            subject="d2t",
            measured=f"{evidence}; d2t[0] = {tables.d2t[0]}, d2t[-1] = {tables.d2t[-1]}",
            expected="offsets: target id minus draft id",
            file=_file(spec, "d2t"),
        )


@check("DSP105", "d2t stays inside the target vocabulary", requires=_TABLES)
def targets_in_range(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    Each mapped id is at least 0 and less than target_vocab_size.

    ## Why it matters
    An id outside is an out-of-bounds read of the embedding on the device: a crash at best, another token at worst.

    ## How to fix
    Build the table again from the token counts that the draft was trained with; check that it belongs to this target.

    ## Reported in
    mobilint `build_eagle3_safetensors.py` (review: range of i + d2t not checked)
    """
    targets, vocab = _targets(spec, tables), spec.target_vocab_size
    if targets is None or vocab is None:
        return
    outside = np.flatnonzero((targets < 0) | (targets >= vocab))
    if outside.size:
        yield Problem(
            f"{outside.size} mapped ids leave the target vocabulary",
            subject="d2t",
            measured=f"draft id {outside[0]} maps to {_exact(spec, tables, int(outside[0]))}",
            expected=f"0 to {vocab - 1}",
            file=_file(spec, "d2t"),
        )


@check("DSP106", "Mapped ids ascend", requires=("DSP102", "DSP105"))
def targets_ascend(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    The target ids of draft tokens 0, 1, 2, ... only grow.

    ## Why it matters
        `t2d` knows no order, so everything that derives rows from it (the trainer's own head, a rewrite for an engine without `d2t`) assumes
    ascending ids. A table out of order pairs head rows with other tokens.

    ## How to fix
    Sort the ids and reorder the rows of `lm_head` and `markov_w2` with them, or build the table again.

    ## Reported in
    speculators `train/vocab_mapping.py` (ids are sorted); TorchSpec `preprocessing.py`
    """
    targets = _targets(spec, tables)
    if targets is None:
        return
    falling = np.flatnonzero(np.diff(targets) < 0)
    if falling.size:
        at = int(falling[0])
        yield Problem(
            f"the mapped ids fall at {falling.size} places",
            subject="d2t",
            measured=f"draft ids {at}, {at + 1} map to {targets[at]}, {targets[at + 1]}",
            expected="strictly ascending target ids",
            file=_file(spec, "d2t"),
        )


@check("DSP107", "No target token is mapped twice", requires=("DSP102", "DSP105"))
def targets_unique(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    No two draft tokens map to the same target token.

    ## Why it matters
    Probabilities of the two rows land on one token and the later write wins: sampled verification is then wrong, and one kept token can never be drafted.

    ## How to fix
    Build the table again from distinct target ids.

    ## Reported in
    SGLang `reject_sampling` (draft probabilities are scattered by id); mobilint `build_eagle3_safetensors.py`
    """
    targets = _targets(spec, tables)
    if targets is None:
        return
    ids, counts = np.unique(targets, return_counts=True)
    twice = ids[counts > 1]
    if twice.size:
        yield Problem(
            f"{twice.size} target ids are mapped more than once",
            subject="d2t",
            measured=f"target id {twice[0]} from draft ids {np.flatnonzero(targets == twice[0])[:4].tolist()}",
            expected="each target id at most once",
            file=_file(spec, "d2t"),
        )


@check("DSP108", "d2t and t2d name the same tokens", requires=("DSP102", "DSP103", "DSP105", "DSP107"))
def tables_agree(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    The ids that `t2d` marks are the ids that `d2t` maps to.

    ## Why it matters
    The trainer selects head rows by `t2d`, engines map drafted ids by `d2t`. When they differ the draft proposes tokens that its rows do not stand for.

    ## How to fix
    Take both tables from one run. With --target the rows of `lm_head` tell which of the two is right.

    ## Reported in
    speculators#1081 (a cached table of another run was loaded)
    """
    targets, members = _targets(spec, tables), tables.members()
    if targets is None or members is None or np.array_equal(targets, members):
        return
    only_d2t, only_t2d = np.setdiff1d(targets, members), np.setdiff1d(members, targets)
    if only_d2t.size or only_t2d.size:
        shown = f"{only_d2t.size} ids only in d2t ({_first(only_d2t)}), {only_t2d.size} only in t2d ({_first(only_t2d)})"
        yield Problem(
            "d2t and t2d disagree",
            subject="d2t, t2d",
            measured=shown,
            expected=f"the same {targets.size} ids",
            file=_file(spec, "t2d"),
            hint="Pass --target to decide: the head's rows equal the target's rows of the right ids.",
        )


@check("DSP109", "t2d holds only 0 and 1", requires=("DSP103",))
def t2d_is_boolean(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    Each byte of the BOOL tensor `t2d` is 0 or 1.

    ## Why it matters
    Other bytes count as true in one library and are undefined in another; a sum over them gives a wrong vocabulary size.

    ## How to fix
    Save the mask again from a real bool tensor.

    ## Reported in
    safetensors README, section Format (BOOL is one byte)
    """
    if tables.t2d is None or not spec.reduced_vocabulary:
        return
    odd = np.flatnonzero(tables.t2d > 1)
    if odd.size:
        yield Problem(f"{odd.size} bytes of t2d are neither 0 nor 1", subject="t2d", measured=f"t2d[{odd[0]}] = {tables.t2d[odd[0]]}", expected="0 or 1", file=_file(spec, "t2d"))


@check("DSP110", "The table was filled", severity=Severity.WARNING, requires=_TABLES)
def table_filled(spec: DraftSpec, tables: VocabularyTables) -> Iterator[Problem]:
    """
    ## What it checks
    `d2t` is not all zeros and not 0, 1, 2, ...: both are what a table holds that nobody filled.

    ## Why it matters
    Zeros map draft ids onto the first ids of the target, counting numbers onto every second one. Both are valid tables and almost never the intended ones.

    ## How to fix
    Restore the table of the training run; pass --target to compare the head's rows, which decides it.

    ## Reported in
    vLLM 0.33.0 `qwen3_dflash.py` (a missing table stays zeros)
    """
    if tables.d2t is None or tables.d2t.size < 2 or spec.d2t is D2T.ABSOLUTE or not spec.reduced_vocabulary:
        return
    if not tables.d2t.any():
        yield Problem(
            "d2t is all zeros", subject="d2t", measured=f"draft ids map to target ids 0 to {tables.d2t.size - 1}", expected="offsets of the kept tokens", file=_file(spec, "d2t")
        )
    elif np.array_equal(tables.d2t, np.arange(tables.d2t.size)):
        yield Problem("d2t counts 0, 1, 2, ...", subject="d2t", measured="draft ids map to every second target id", expected="offsets of the kept tokens", file=_file(spec, "d2t"))


@check("DSP111", "The draft can propose bytes and special tokens", severity=Severity.INFO, requires=("DSP102", "DSP105"))
def byte_tokens_kept(spec: DraftSpec, tables: VocabularyTables, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Which byte tokens and special tokens of the target's tokenizer a reduced vocabulary leaves out.

    ## Why it matters
        A token outside the draft's vocabulary can never be drafted. That costs acceptance where the text needs it (rare scripts, the end of a turn,
    tool calls) and is never wrong: the target still decides.

    ## How to fix
    Nothing to do for serving. Keep these tokens in the vocabulary mapping of the next training when the loss matters.

    ## Reported in
    speculators `train/vocab_mapping.py` (the most frequent tokens are kept)
    """
    targets, tokenizer = _targets(spec, tables), pairing.tokenizer
    if targets is None or tokenizer is None:
        return
    kept = {int(item) for item in targets}
    lost_bytes = [item for item in tokenizer.byte_ids if item not in kept]
    lost_special = [text for item, text in sorted(tokenizer.special.items()) if item not in kept]
    if lost_bytes or lost_special:
        measured = f"{len(lost_bytes)} of {len(tokenizer.byte_ids)} byte tokens; {len(lost_special)} of {len(tokenizer.special)} special tokens" + (
            f": {listed(lost_special)}" if lost_special else ""
        )
        yield Problem("tokens are missing from the reduced vocabulary", subject="d2t", measured=measured, expected="all kept, or known to be rare", file=_file(spec, "d2t"))


@check("DSP112", "Head rows equal the target's rows", requires=("DSP102", "DSP105"))
def head_rows_equal(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Sampled rows of the draft's `lm_head` are byte for byte the target's rows of the ids that `d2t` gives.

    ## Why it matters
        Trainers freeze the head: it is a row subset of the target's. A difference means a wrong table, a wrong order or another target. This decides
    it without running the model; the draft would propose wrong tokens and accept almost nothing.

    ## How to fix
    Pair the draft with the target that it was trained for, or restore the table of the training run.

    ## Reported in
    TorchSpec `tools/convert_to_hf.py` (wrong rows), speculators#1081 (table of another run)
    """
    if not pairing.head_rows:
        return
    wrong = [row for row in pairing.head_rows if not row.equal]
    if wrong:
        first = wrong[0]
        yield Problem(
            f"{len(wrong)} of {len(pairing.head_rows)} sampled head rows differ from the target's",
            subject="lm_head.weight",
            measured=f"first: draft row {first.draft_id} against target row {first.target_id}",
            expected="equal bytes",
            file=_file(spec, "lm_head.weight"),
        )


def _targets(spec: DraftSpec, tables: VocabularyTables) -> NDArray[np.int64] | None:
    """Target id of each draft id; None for a full vocabulary, whose table (if any) is DSP101's."""
    return tables.targets(spec.d2t) if spec.reduced_vocabulary else None


def _file(spec: DraftSpec, role: str) -> str:
    ref = spec.tensors.get(role)
    return ref.file if ref else ""


def _exact(spec: DraftSpec, tables: VocabularyTables, draft_id: int) -> int:
    """The mapped id in unlimited integers, as int64 may wrap."""
    value = int(tables.d2t[draft_id]) if tables.d2t is not None else 0
    return value if spec.d2t is D2T.ABSOLUTE else draft_id + value


def _first(ids: NDArray[np.int64]) -> str:
    return f"first {ids[0]}" if ids.size else "none"
