"""Facts about the target that a draft is paired with, and sampled rows of both heads. Read once, compared by checks."""

from __future__ import annotations

from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint, Location
from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.model import JsonValue
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec
from speculators_convert.target.tokenizer import Tokenizer, read_tokenizer
from speculators_convert.target.vocabulary import VocabularyTables

HEAD_SAMPLE_ROWS = 256
FAR_HEAD_SAMPLE_ROWS = 16
"""Over a network each row of each side costs a request."""
_HEAD_NAMES = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")
_EMBED_NAMES = ("model.embed_tokens.weight", "embed_tokens.weight", "model.language_model.embed_tokens.weight", "language_model.model.embed_tokens.weight")


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One draft head row and the target row that it should equal."""

    draft_id: int
    target_id: int
    equal: bool


@dataclass(frozen=True, slots=True)
class Pairing:
    """The target's facts; a field is None when the target does not state it."""

    target: Checkpoint
    vocab_size: int | None
    hidden_size: int | None
    num_hidden_layers: int | None
    max_position_embeddings: int | None
    tie_word_embeddings: bool
    architectures: tuple[str, ...]
    head: Location | None
    embed: Location | None
    head_rows: tuple[HeadRow, ...] | None
    head_rows_reason: str = ""
    tokenizer: Tokenizer | None = None


def text_config(config: object) -> dict[str, JsonValue]:
    """The text part of a (possibly multimodal) target config."""
    if not isinstance(config, dict):
        return {}
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def head_dim(config: object) -> int | None:
    """Width of an attention head of a target config; None when it does not say, or keeps keys and values compressed."""
    text = text_config(config)
    stated, hidden, heads = (_integer(text.get(key)) for key in ("head_dim", "hidden_size", "num_attention_heads"))
    if text.get("kv_lora_rank") is not None:
        return None
    return stated or (hidden // heads if hidden and heads else None)


def collect_pairing(draft_source: Source, spec: DraftSpec | None, tables: VocabularyTables | None, target_source: Source, target: Checkpoint) -> Pairing:
    """Read the target's facts and compare sampled head rows through `d2t`."""
    config = text_config(dict(target.config))
    tied = config.get("tie_word_embeddings") is True
    embed = _first(target, _EMBED_NAMES)
    head = _first(target, _HEAD_NAMES) or (embed if tied else None)
    rows, reason = _head_rows(draft_source, spec, tables, target_source, head)
    names = config.get("architectures")
    return Pairing(
        target=target,
        vocab_size=_integer(config.get("vocab_size")),
        hidden_size=_integer(config.get("hidden_size")),
        num_hidden_layers=_integer(config.get("num_hidden_layers")),
        max_position_embeddings=_integer(config.get("max_position_embeddings")),
        tie_word_embeddings=tied,
        architectures=tuple(item for item in names if isinstance(item, str)) if isinstance(names, list) else (),
        head=head,
        embed=embed,
        head_rows=rows,
        head_rows_reason=reason,
        tokenizer=read_tokenizer(target_source),
    )


def _first(target: Checkpoint, names: tuple[str, ...]) -> Location | None:
    return next((target.tensors[name] for name in names if name in target.tensors), None)


def _integer(value: JsonValue) -> int | None:
    return value if type(value) is int else None


def _head_rows(
    draft_source: Source, spec: DraftSpec | None, tables: VocabularyTables | None, target_source: Source, head: Location | None
) -> tuple[tuple[HeadRow, ...] | None, str]:
    own = spec.tensors.get("lm_head.weight") if spec else None
    if spec is None or own is None or len(own.shape) != 2:
        return None, "the draft has no head of its own"
    if head is None or len(head.tensor.shape) != 2:
        return None, "the target has no plain lm_head"
    if (own.dtype, own.shape[1]) != (head.tensor.dtype, head.tensor.shape[1]) or not own.shape[0]:
        return None, f"the heads cannot be compared: {own.dtype} {own.shape} against {head.tensor.dtype} {head.tensor.shape}"
    targets = tables.targets(spec.d2t) if tables else None
    width = own.shape[1] * DTYPE_BITS[own.dtype] // 8
    rows = []
    samples = FAR_HEAD_SAMPLE_ROWS if "hub" in {draft_source.id.kind, target_source.id.kind} else HEAD_SAMPLE_ROWS
    for draft_id in sorted({step * own.shape[0] // samples for step in range(samples)}):
        target_id = draft_id if targets is None else int(targets[draft_id]) if draft_id < targets.size else -1
        if not 0 <= target_id < head.tensor.shape[0]:
            rows.append(HeadRow(draft_id, target_id, equal=False))
            continue
        mine = draft_source.read(own.file, own.start + draft_id * width, own.start + (draft_id + 1) * width)
        start = head.tensor.start + target_id * width
        rows.append(HeadRow(draft_id, target_id, equal=mine == target_source.read(head.file, start, start + width)))
    return tuple(rows), ""
