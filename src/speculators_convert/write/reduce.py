"""Choose the vocabulary of a reduced draft from token counts: pure functions over what `prepare` has read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculators_convert.errors import UsageError
from speculators_convert.layouts.base import Kept
from speculators_convert.model import JsonValue

_BYTES_AS_THEMSELVES = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
BYTE_SYMBOLS = [chr(byte) for byte in sorted(_BYTES_AS_THEMSELVES)] + [chr(0x100 + index) for index in range(256 - len(_BYTES_AS_THEMSELVES))]
"""How byte-level BPE (GPT-2) spells the 256 bytes: printable ones as themselves, the others from U+0100 on."""
_FALLBACKS = [f"<0x{byte:02X}>" for byte in range(256)]
"""How SentencePiece vocabularies with byte fallback spell them."""


@dataclass(frozen=True, slots=True)
class Always:
    """Token ids that a reduced vocabulary never leaves out, by why."""

    byte: frozenset[int] = frozenset()
    special: frozenset[int] = frozenset()
    eos: frozenset[int] = frozenset()

    @property
    def ids(self) -> frozenset[int]:
        """All of them."""
        return self.byte | self.special | self.eos


def always_kept(tokenizer: JsonValue, configs: Iterable[Mapping[str, JsonValue]]) -> Always:
    """Byte and special tokens of a `tokenizer.json`, and the end tokens that the target's configs name."""
    model = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        raise UsageError(
            "the target's tokenizer.json has no vocabulary to find byte tokens in",
            where="tokenizer.json",
            expected="model.vocab",
            hint="pass a mask with --reduce-vocab t2d.npy instead",
        )
    spelled = [vocabulary[name] for name in (*BYTE_SYMBOLS, *_FALLBACKS) if type(vocabulary.get(name)) is int]
    added = tokenizer.get("added_tokens") or []
    special = [item["id"] for item in added if isinstance(item, dict) and item.get("special") is True and type(item.get("id")) is int]
    return Always(frozenset(spelled), frozenset(special), frozenset(end for config in configs for end in _ends(config.get("eos_token_id"))))


def _ends(value: JsonValue) -> list[int]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if type(item) is int]


def count_tokens(lines: Iterable[str], vocab_size: int, name: str = "corpus") -> NDArray[np.int64]:
    """How often each id stands in a JSON Lines corpus: a list of ids per line, or an object with `input_ids` (and `output_ids`)."""
    counts = np.zeros(vocab_size, np.int64)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        for ids in _id_lists(line, f"{name}:{number}"):
            found = np.asarray(ids, np.int64)
            if found.size and (found.min() < 0 or found.max() >= vocab_size):
                raise UsageError(
                    "a token id lies outside the target's vocabulary",
                    where=f"{name}:{number}",
                    measured=int(found.max()),
                    expected=f"0..{vocab_size - 1}",
                    hint="tokenize the corpus with the target's tokenizer",
                )
            counts += np.bincount(found, minlength=vocab_size)
    if not counts.any():
        raise UsageError("the corpus holds no tokens", where=name, expected="JSON Lines with lists of token ids")
    return counts


def _id_lists(line: str, where: str) -> list[list[int]]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError("the corpus is not JSON Lines", where=where, measured=str(error)[:80], expected='[1, 2, 3] or {"input_ids": [1, 2, 3]}') from error
    lists = [value] if isinstance(value, list) else [value.get(key, []) for key in ("input_ids", "output_ids")] if isinstance(value, dict) and "input_ids" in value else None
    if lists is None or not all(isinstance(ids, list) and all(type(item) is int for item in ids) for ids in lists):
        raise UsageError(
            "a corpus line holds no token ids",
            where=where,
            measured=line[:60],
            expected='[1, 2, 3] or {"input_ids": [1, 2, 3]}',
            hint="tokenize the text first: the tool counts ids and reads no text",
        )
    return lists


def choose(counts: NDArray[np.int64], size: int, always: Always) -> Kept:
    """The `size` ids to keep: those of `always`, then the most frequent, the lower id first among equals."""
    vocab_size = int(counts.size)
    outside = sorted(item for item in always.ids if not 0 <= item < vocab_size)
    fixed = np.array(sorted(always.ids - set(outside)), np.int64)
    if not fixed.size <= size < vocab_size:
        raise UsageError(
            "no vocabulary of that size can be made", where="--reduce-vocab", measured=size, expected=f"at least {fixed.size} (byte, special and end tokens) and below {vocab_size}"
        )
    order = np.lexsort((np.arange(vocab_size), -counts))
    free = order[~np.isin(order, fixed)]
    kept = np.sort(np.concatenate((fixed, free[: size - fixed.size])))
    parts = f"{len(always.byte)} byte, {len(always.special)} special and {len(always.eos)} end tokens, the rest by count"
    return Kept(kept.tolist(), f"{parts}; {coverage(counts, kept)}")


def from_mask(mask: NDArray[np.generic], vocab_size: int, always: Always, counts: NDArray[np.int64] | None = None) -> Kept:
    """The ids that a t2d mask marks; `UsageError` when it is none or leaves out a token that must stay."""
    flat = mask.astype(np.int64) if mask.ndim == 1 and mask.dtype.kind in "biu" else None
    if flat is None or flat.size != vocab_size or not set(np.unique(flat).tolist()) <= {0, 1}:
        raise UsageError("not a t2d mask", where="--reduce-vocab", measured=f"{mask.dtype} {list(mask.shape)}", expected=f"0 and 1, [{vocab_size}]")
    kept = np.flatnonzero(flat)
    missing = sorted(always.ids - set(kept.tolist()))
    if missing or not 0 < kept.size < vocab_size:
        raise UsageError(
            "the mask leaves out byte, special or end tokens, or keeps all or nothing",
            where="--reduce-vocab",
            measured=f"{kept.size} kept, without {missing[:5]}",
            expected="a part of the vocabulary with those tokens",
        )
    return Kept(kept.tolist(), "as the mask says" + (f"; {coverage(counts, kept)}" if counts is not None else ""))


def coverage(counts: NDArray[np.int64], kept: NDArray[np.int64]) -> str:
    """Which share of the corpus the kept ids cover."""
    total, covered = int(counts.sum()), int(counts[kept].sum())
    return f"{kept.size} of {counts.size} ids cover {covered} of {total} corpus tokens ({covered / total:.2%})"
