"""Strict JSON from untrusted bytes: no duplicate keys, no NaN or Infinity, no lone surrogates, bounded depth and numbers.

`json` of the standard library lets all of these pass; each later breaks a reader, a canonical dump or a terminal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from speculators_convert.model import JsonValue

MAX_DEPTH = 64
MAX_ITEMS = 2_000_000
"""Values in one document. Each costs up to a hundred bytes in memory for two in the file, so this bounds what a small file can make us allocate."""
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class DuplicateKeyError(ValueError):
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:80]!r} stands twice in one object")
        self.key = key


def loads(data: bytes) -> JsonValue:
    """The value of a UTF-8 JSON text; `ValueError` (or `DuplicateKeyError`) says what is wrong."""
    items = sum(map(data.count, (b",", b"[", b"{")))
    if items > MAX_ITEMS:
        raise ValueError(f"{items} values or more, over the limit of {MAX_ITEMS}")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer)
    except RecursionError as error:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from error
    _check_depth(value)
    if _SURROGATE_ESCAPE.search(data):
        _check_text(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return result


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _integer(text: str) -> int | float:
    """`-0` is a float for the reference parser of safetensors headers (serde_json), so it is one here."""
    return -0.0 if text == "-0" else int(text)


def _check_depth(value: JsonValue) -> None:
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for parent in level for item in _children(parent) if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_text(value: JsonValue) -> None:
    """`UnicodeEncodeError`, a `ValueError`, when a string holds half of a surrogate pair."""
    json.dumps(value, ensure_ascii=False).encode("utf-8")
