"""Words and sizes for a draft: what its numbers mean for a forward pass and for memory."""

from __future__ import annotations

from collections.abc import Iterable

from speculators_convert.findings import SizeInfo, TensorRow
from speculators_convert.results.smoke import Block
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec

_VOCABULARY_ROWS = {"lm_head.weight", "markov_head.markov_w2.weight"}
_SPLIT_PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.")


def describe(spec: DraftSpec) -> tuple[str, ...]:
    """Sentences about the block, the taps, the vocabulary, the heads and the attention."""
    return tuple(line for line in (_block(spec), _taps(spec), _vocabulary(spec), _heads(spec), _attention(spec), _positions(spec)) if line)


def block(spec: DraftSpec) -> Block:
    """The block in numbers and in sentences, for results that must be read without the checkpoint."""
    return Block(anchor=spec.anchor, gamma=spec.gamma, query_slots=spec.query_slots, facts=describe(spec))


def tensor_rows(spec: DraftSpec) -> tuple[TensorRow, ...]:
    """The tensor table in role order."""
    return tuple(
        TensorRow(role=role, name=ref.name, file=ref.file, dtype=ref.dtype, shape=ref.shape, size_bytes=ref.size_bytes)
        for role, ref in sorted(spec.tensors.items(), key=lambda item: _natural(item[0]))
    )


def sizes(spec: DraftSpec, tp_degrees: Iterable[int]) -> SizeInfo | None:
    """Bytes in total, per rank, and read per block; None when gamma is not known."""
    if spec.gamma is None or not spec.tensors:
        return None
    own = {role: ref.size_bytes for role, ref in spec.tensors.items()}
    tables = {"d2t", "t2d", "embed_tokens.weight"}
    borrowed = 0 if "lm_head.weight" in own else _borrowed_head(spec)
    w1, w2 = own.get("markov_head.markov_w1.weight", 0), own.get("markov_head.markov_w2.weight", 0)
    once = sum(size for role, size in own.items() if role not in tables and role not in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"))
    row = w1 // spec.target_vocab_size if spec.target_vocab_size else 0
    return SizeInfo(
        tensor_bytes=sum(own.values()),
        per_rank_bytes={str(degree): _per_rank(spec, degree) for degree in sorted({1, *tp_degrees})},
        read_per_block_bytes=once + borrowed + spec.gamma * (w2 + row),
        borrowed_head_bytes=borrowed,
    )


def human_bytes(count: int) -> str:
    """A byte count in decimal units."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    raise AssertionError


def _per_rank(spec: DraftSpec, degree: int) -> int:
    total = 0
    for role, ref in spec.tensors.items():
        if role in _VOCABULARY_ROWS and ref.shape:
            total += -(-ref.shape[0] // degree) * (ref.size_bytes // max(ref.shape[0], 1))
        elif any(part in role for part in _SPLIT_PARTS):
            total += -(-ref.size_bytes // degree)
        else:
            total += ref.size_bytes
    return total


def _borrowed_head(spec: DraftSpec) -> int:
    ref = spec.tensors.get("fc.weight")
    if ref is None or not ref.shape or not spec.target_vocab_size or not spec.hidden_size:
        return 0
    elements = 1
    for extent in ref.shape:
        elements *= extent
    return spec.target_vocab_size * spec.hidden_size * ref.size_bytes // max(elements, 1)


def _block(spec: DraftSpec) -> str:
    if spec.anchor is None or spec.gamma is None:
        return "the anchor layout is open: the file does not say whether slot 0 is sampled"
    sampled = "slot 0 is sampled" if spec.anchor is Anchor.SAMPLED else "slot 0 not sampled"
    return f"gamma {spec.gamma}: draft forward of {spec.query_slots} slots, {sampled}; verification of {spec.gamma + 1} tokens"


def _taps(spec: DraftSpec) -> str:
    if not spec.target_layer_ids:
        return ""
    ids = list(spec.target_layer_ids)
    return f"taps the output of target layers {ids} (hidden_states {[item + 1 for item in ids]}): fc maps {len(ids)} x {spec.target_hidden_size} to {spec.hidden_size}"


def _vocabulary(spec: DraftSpec) -> str:
    if spec.target_vocab_size is None:
        return ""
    if not spec.reduced_vocabulary:
        return f"full vocabulary of {spec.target_vocab_size}; head and embedding are the target's own"
    rule = {D2T.OFFSET: "target id = draft id + d2t[draft id]", D2T.ABSOLUTE: "d2t holds absolute ids", D2T.NONE: "no d2t"}[spec.d2t]
    return f"reduced vocabulary: {spec.draft_vocab_size} of {spec.target_vocab_size}; {rule}"


def _heads(spec: DraftSpec) -> str:
    if spec.markov is None:
        return "no Markov head"
    confidence = "no confidence head" if spec.confidence is None else f"confidence head on the hidden state{' and the Markov embedding' if spec.confidence.with_markov else ''}"
    kind = spec.markov.kind.value if spec.markov.kind else "unknown"
    return f"{kind} Markov head of rank {spec.markov.rank}; {confidence}"


def _attention(spec: DraftSpec) -> str:
    if spec.layer_types is None:
        return ""
    sliding = sum(kind is AttentionKind.SLIDING for kind in spec.layer_types)
    full = len(spec.layer_types) - sliding
    parts = [f"{full} full layers, bidirectional inside the block"] if full else []
    if sliding:
        parts.append(f"{sliding} sliding layers of {spec.sliding_window} context tokens before the anchor, {'causal' if spec.sliding_causal else 'bidirectional'} inside the block")
    return "; ".join(parts)


def _positions(spec: DraftSpec) -> str:
    return f"rope theta {spec.rope.theta:g}, type {spec.rope.type}" if spec.rope.theta else ""


def _natural(role: str) -> tuple[object, ...]:
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in role.split("."))
