"""Base of every value that leaves the process as JSON, and the canonical JSON used for digests."""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

JsonValue = Any
"""What `json.loads` returns; the type of each use is narrowed where it is read."""


class Model(BaseModel):
    """Frozen, closed pydantic model; its validator is built at first use, since a command uses few of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_M = TypeVar("_M", bound=Model)


class Severity(StrEnum):
    """How bad a finding is; `rank` orders them."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


_INVISIBLE = "\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_UNPRINTABLE = re.compile(f"[\x00-\x1f{_INVISIBLE}]")
_UNPRINTABLE_IN_LINES = re.compile(f"[\x00-\x09\x0b-\x1f{_INVISIBLE}]")


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with control characters, direction marks and invisible characters as \\uXXXX: a checkpoint must not steer the terminal. `lines` keeps line ends."""
    return (_UNPRINTABLE_IN_LINES if lines else _UNPRINTABLE).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """As JSON writes it: pairs beyond U+FFFF."""
    return json.dumps(match[0])[1:-1] if ord(match[0]) > 0xFFFF else f"\\u{ord(match[0]):04x}"


_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_json(value: JsonValue) -> bytes:
    """UTF-8 bytes of `value` with sorted keys and no spaces; the same value always gives the same bytes."""
    return _readable(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)).encode()


def pretty_json(value: JsonValue) -> str:
    """Indented JSON with sorted keys and a final newline, for files that people read."""
    return printable(_readable(json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)), lines=True) + "\n"


def _readable(document: str) -> str:
    """JSON that every reader takes: what Python keeps of a name that is not UTF-8, a lone surrogate, is spelled out as the text \\uXXXX."""
    return _SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", document)


def packed(value: Model) -> bytes:
    """One line for another process of this package; `unpacked` gives the same value again, names that are not UTF-8 included."""
    return json.dumps(value.model_dump(mode="json")).encode("ascii")


def unpacked(kind: type[_M], line: bytes) -> _M:
    """The value that `packed` wrote; `ValueError` when it is cut short or another one."""
    return kind.model_validate(json.loads(line))


def sha256_hex(data: bytes) -> str:
    """SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
