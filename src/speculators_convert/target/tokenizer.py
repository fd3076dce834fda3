"""What a target's `tokenizer.json` says of single ids: special tokens, byte tokens, and plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from speculators_convert.checkpoint import parse_document
from speculators_convert.errors import SourceError
from speculators_convert.model import JsonValue
from speculators_convert.sources import Source

TOKENIZER_NAME = "tokenizer.json"
MAX_TOKENIZER_BYTES = 128 * 1024 * 1024
_BYTE_FALLBACK = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Ids by what they are. `text` is the token of an id, as the file writes it."""

    text: dict[int, str]
    special: dict[int, str]
    byte_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return max((*self.text, *self.special), default=-1) + 1


def read_tokenizer(source: Source) -> Tokenizer | None:
    """The tokenizer of a target; None when it has none or one of another form."""
    info = next((item for item in source.files() if item.path == TOKENIZER_NAME), None)
    if info is None or info.refused or info.size_bytes > MAX_TOKENIZER_BYTES:
        return None
    try:
        return parse_tokenizer(parse_document(source.read(TOKENIZER_NAME, 0, info.size_bytes)))
    except (SourceError, ValueError, RecursionError):
        return None


def parse_tokenizer(document: JsonValue) -> Tokenizer | None:
    """The ids of a `tokenizer.json` document of the tokenizers library."""
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict):
        return None
    text = _vocabulary(model.get("vocab"))
    if not text:
        return None
    added = document.get("added_tokens")
    special = {
        item["id"]: item["content"]
        for item in (added if isinstance(added, list) else ())
        if isinstance(item, dict) and type(item.get("id")) is int and isinstance(item.get("content"), str)
    }
    return Tokenizer(text, special, _byte_ids(text, special))


def _vocabulary(vocabulary: JsonValue) -> dict[int, str]:
    """Id to token; BPE and WordPiece write an object, Unigram a list of token and score."""
    if isinstance(vocabulary, dict):
        return {value: key for key, value in vocabulary.items() if type(value) is int}
    if isinstance(vocabulary, list):
        return {index: item[0] for index, item in enumerate(vocabulary) if isinstance(item, list) and item and isinstance(item[0], str)}
    return {}


def _byte_ids(text: dict[int, str], special: dict[int, str]) -> tuple[int, ...]:
    """Ids that stand for one byte: `<0x0A>` of a byte fallback, or the single characters of a byte-level alphabet."""
    fallback = sorted(index for index, token in text.items() if _BYTE_FALLBACK.fullmatch(token))
    if fallback:
        return tuple(fallback)
    alphabet = byte_alphabet()
    found = sorted(index for index, token in text.items() if token in alphabet and index not in special)
    return tuple(found) if len(found) == len(alphabet) else ()


def byte_alphabet() -> frozenset[str]:
    """The 256 characters that byte-level BPE writes for bytes: printable Latin-1 as itself, the rest moved above U+0100 (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return frozenset(chr(item) for item in printable) | frozenset(chr(0x100 + item) for item in range(256 - len(printable)))
