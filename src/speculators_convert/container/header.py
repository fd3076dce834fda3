"""Safetensors headers: strict parsing and canonical encoding.

Rules are those of the format's own `validate` (contiguous data from 0 to the end of the file, shape times dtype equals
the range) plus the two that its implementation lets pass although its README forbids them: duplicate keys and a first
byte other than `{`. Sizes are checked before anything is allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speculators_convert.container.strict_json import DuplicateKeyError, loads
from speculators_convert.model import JsonValue

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation (safetensors `tensor.rs`, MAX_HEADER_SIZE)."""

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_MAX_DIMENSIONS = 64
_MAX_NAME_CHARACTERS = 4096
_INT_LIMIT = 1 << 63


class HeaderFault(Exception):  # noqa: N818 - it becomes a Fault of the checkpoint
    """A header that is not valid; `kind` is stable and selects the check code."""

    def __init__(self, kind: str, message: str, *, tensor: str = "", measured: object = None, expected: object = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.tensor, self.measured, self.expected = kind, message, tensor, measured, expected


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor; `start` and `stop` are byte offsets in the file (not in the data section)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """Bytes of data."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header: its size with the 8-byte length, `__metadata__`, and tensors in data order."""

    size_bytes: int
    metadata: Mapping[str, str]
    tensors: tuple[Tensor, ...]


def header_length(first: bytes, file_size_bytes: int) -> int:
    """Length of the JSON part, from the first 8 bytes; `HeaderFault` when it cannot be right."""
    if file_size_bytes < 8 or len(first) < 8:
        raise HeaderFault("too-short", "the file is too short for a safetensors header", measured=f"{file_size_bytes} bytes", expected="at least 8 bytes")
    length = int.from_bytes(first[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise HeaderFault("header-too-large", "the header length is over the format's limit", measured=f"{length} bytes", expected=f"at most {MAX_HEADER_BYTES}")
    if 8 + length > file_size_bytes:
        raise HeaderFault(
            "header-beyond-file", "the header is larger than the file", measured=f"{length} bytes of header in a file of {file_size_bytes}", expected="a header inside the file"
        )
    return length


def parse(raw: bytes, file_size_bytes: int) -> Header:
    """The header in `raw` (8-byte length and JSON); `HeaderFault` names the first rule that it breaks."""
    length = header_length(raw, file_size_bytes)
    entries = _json_object(raw[8 : 8 + length])
    metadata = _metadata(entries.pop("__metadata__", {}))
    base = 8 + length
    tensors = sorted((_tensor(name, entry, base) for name, entry in entries.items()), key=lambda item: (item.start, item.stop))
    _check_cover(tensors, base, file_size_bytes)
    return Header(base, metadata, tuple(tensors))


def encode(tensors: Iterable[Tensor], metadata: Mapping[str, str]) -> bytes:
    """Header bytes for `tensors` laid out in the given order; their own offsets are not used, only name, dtype, shape and size."""
    entries: dict[str, JsonValue] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    for item in tensors:
        stop = offset + item.size_bytes
        entries[item.name] = {"dtype": item.dtype, "shape": list(item.shape), "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def tensor_size_bytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor; `HeaderFault` for an unknown dtype or one that does not end on a whole byte."""
    if dtype not in DTYPE_BITS:
        raise HeaderFault("tensor-entry", "unknown dtype", measured=repr(dtype)[:80], expected="one of " + ", ".join(sorted(DTYPE_BITS)))
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits % 8:
        raise HeaderFault("size-mismatch", "the tensor does not end on a whole byte", measured=f"{bits} bits")
    return bits // 8


def _json_object(text: bytes) -> dict[str, JsonValue]:
    if not text.startswith(b"{"):
        raise HeaderFault("header-json", "the header does not start with '{'", measured=repr(text[:8]), expected="a JSON object")
    try:
        value = loads(text)
    except DuplicateKeyError as error:
        raise HeaderFault("duplicate-key", "a JSON key stands twice", tensor=error.key, measured=f"{error.key[:80]!r} twice", expected="each key once") from error
    except UnicodeDecodeError as error:
        raise HeaderFault("header-json", "the header is not UTF-8", measured=f"byte {error.start}", expected="UTF-8") from error
    except ValueError as error:
        raise HeaderFault("header-json", "the header is not valid JSON", measured=str(error)[:120], expected="a JSON object") from error
    if not isinstance(value, dict):
        raise HeaderFault("header-json", "the header is not a JSON object", measured=type(value).__name__)
    return value


def _metadata(value: JsonValue) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise HeaderFault("metadata-type", "__metadata__ must map strings to strings", measured=repr(value)[:120], expected='{"format": "pt"}')
    return value


def _tensor(name: str, entry: JsonValue, base: int) -> Tensor:
    if not isinstance(entry, dict) or set(entry) != _ENTRY_KEYS:
        raise HeaderFault("tensor-entry", "a tensor entry needs exactly dtype, shape and data_offsets", tensor=name, measured=repr(entry)[:120])
    if len(name) > _MAX_NAME_CHARACTERS:
        raise HeaderFault("tensor-entry", "a tensor name is too long", tensor=name[:80], measured=f"{len(name)} characters", expected=f"at most {_MAX_NAME_CHARACTERS}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not _is_naturals(shape) or len(shape) > _MAX_DIMENSIONS or not _is_naturals(offsets) or len(offsets) != 2:
        raise HeaderFault("tensor-entry", "dtype must be a string, shape and the two data_offsets natural numbers", tensor=name, measured=repr(entry)[:120])
    if _overflows(shape):
        raise HeaderFault("tensor-entry", "the number of elements overflows 64 bits", tensor=name, measured=repr(shape)[:120])
    start, stop = offsets
    try:
        size = tensor_size_bytes(dtype, shape)
    except HeaderFault as fault:
        fault.tensor = name
        raise
    if stop - start != size:
        raise HeaderFault(
            "size-mismatch",
            "shape and dtype do not fill the byte range",
            tensor=name,
            measured=f"{stop - start} bytes at {start}..{stop}",
            expected=f"{size} bytes for {dtype} {shape}",
        )
    return Tensor(name, dtype, tuple(shape), base + start, base + stop)


def _overflows(shape: list[int]) -> bool:
    """Whether the product passes 64 bits on the way, as the reference implementation multiplies: left to right."""
    count = 1
    for extent in shape:
        count *= extent
        if count >= _INT_LIMIT:
            return True
    return False


def _is_naturals(value: JsonValue) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < _INT_LIMIT for item in value)


def _check_cover(tensors: list[Tensor], base: int, file_size_bytes: int) -> None:
    position = base
    for item in tensors:
        if item.start < position:
            raise HeaderFault("overlap", "two tensors share bytes", tensor=item.name, measured=f"starts at {item.start}", expected=f"at {position} or later")
        if item.start > position:
            raise HeaderFault("hole", "bytes belong to no tensor", tensor=item.name, measured=f"{item.start - position} bytes before it", expected="no gap")
        position = item.stop
    if position > file_size_bytes:
        raise HeaderFault("truncated", "the file ends before its tensors do", tensor=tensors[-1].name, measured=f"{file_size_bytes} bytes", expected=f"{position} bytes")
    if position < file_size_bytes:
        raise HeaderFault("trailing", "bytes follow the last tensor", measured=f"{file_size_bytes - position} bytes", expected="none")
