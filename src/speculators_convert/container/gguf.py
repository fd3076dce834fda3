"""GGUF files: metadata and tensor table, strictly parsed. Weights are never read here.

Rules: the GGUF specification (versions 2 and 3, little-endian) and the block sizes of ggml's types. Each count and length
is checked against the bytes that are left in the file before anything is allocated; long arrays are counted, not kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from speculators_convert.container.header import Tensor
from speculators_convert.model import JsonValue

MAGIC = b"GGUF"
MAX_KEPT_ITEMS = 4096
"""Longer arrays (a tokenizer's vocabulary) are kept as their kind and length."""
MAX_HEADER_BYTES = 128 * 1024 * 1024
MAX_ENTRIES = 100_000
"""Limit for tensors and for metadata pairs."""
_MAX_KEPT_IN_ALL = 1 << 20
_MAX_NAME_BYTES = 65_535
_MAX_STRING_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 4
_CHUNK_BYTES = 1 << 20
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_LEAST_BYTES = {**{kind: struct.calcsize(form) for kind, form in _SCALARS.items()}, _STRING: 8}

GGML_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip
"""ggml type number to name, elements per block, bytes per block."""


class GgufFault(Exception):  # noqa: N818 - it becomes a Fault of the checkpoint
    """A file that is not valid GGUF; says what, where in the file, and what was expected."""

    def __init__(self, message: str, *, tensor: str = "", measured: object = None, expected: object = None) -> None:
        super().__init__(message)
        self.message, self.tensor, self.measured, self.expected = message, tensor, measured, expected


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array that is too long to keep: the kind of its items and their number."""

    kind: str
    length: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata and tensors; shapes are row-major (the reverse of ggml's order), offsets are those of the file."""

    version: int
    metadata: Mapping[str, JsonValue | LongArray]
    tensors: tuple[Tensor, ...]
    data_start: int


def parse_gguf(read: Callable[[int, int], bytes], size_bytes: int) -> GgufFile:
    """The table of a file of `size_bytes`, read through `read(start, stop)`; `GgufFault` names the first rule that it breaks."""
    cursor = _Cursor(read, size_bytes)
    if size_bytes < 24 or cursor.take(4) != MAGIC:
        raise GgufFault("the file does not start as GGUF does", measured=f"{size_bytes} bytes", expected="GGUF, a version, two counts")
    version = cursor.number("<I")
    if version not in (2, 3):
        raise GgufFault("the GGUF version is not supported", measured=version if version < 1 << 16 else "big-endian or damaged", expected="2 or 3, little-endian")
    tensor_count, pair_count = cursor.number("<Q"), cursor.number("<Q")
    for count, least_bytes, what in ((tensor_count, 24, "tensors"), (pair_count, 13, "metadata pairs")):
        cursor.expect(count, least_bytes, what)
        if count > MAX_ENTRIES:
            raise GgufFault(f"too many {what}", measured=count, expected=f"at most {MAX_ENTRIES}")
    metadata: dict[str, JsonValue | LongArray] = {}
    for _ in range(pair_count):
        key = cursor.string(_MAX_NAME_BYTES)
        if key in metadata:
            raise GgufFault("a metadata key stands twice", measured=repr(key)[:120], expected="each key once")
        metadata[key] = cursor.value(cursor.number("<I"))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise GgufFault("general.alignment must be a power of two", measured=str(alignment)[:40], expected="32")
    entries = [_entry(cursor) for _ in range(tensor_count)]
    data_start = cursor.position + -cursor.position % alignment
    return GgufFile(version, metadata, _place(entries, data_start, alignment, size_bytes), data_start)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class _Cursor:
    """Reads forward in chunks; refuses to pass the end of the file."""

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._read, self._end = read, min(size_bytes, MAX_HEADER_BYTES)
        self.position, self._buffer, self._start, self._kept = 0, b"", 0, 0

    def expect(self, count: int, least_bytes: int, what: str) -> None:
        """`GgufFault` unless `count` items of at least `least_bytes` can still follow."""
        if count > (self._end - self.position) // least_bytes:
            raise GgufFault(f"more {what} than the file can hold", measured=count, expected=f"at most {(self._end - self.position) // least_bytes} at byte {self.position}")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > self._end - self.position:
            raise GgufFault("the file ends inside its header", measured=f"{count} bytes wanted at byte {self.position}", expected=f"at most {self._end - self.position}")
        first = self.position - self._start
        if first + count > len(self._buffer):
            self._start, first = self.position, 0
            self._buffer = self._read(self.position, min(self._end, self.position + max(count, _CHUNK_BYTES)))
        self.position += count
        return self._buffer[first : first + count]

    def skip(self, count: int) -> None:
        """Pass `count` bytes unread."""
        self.expect(count, 1, "bytes")
        self.position += count
        if not self._start <= self.position <= self._start + len(self._buffer):
            self._start, self._buffer = self.position, b""

    def number(self, form: str) -> int:
        """One integer."""
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def string(self, limit: int) -> str:
        """One string of at most `limit` bytes; bytes that are not UTF-8 are escaped."""
        length = self.number("<Q")
        if length > limit:
            raise GgufFault("a string is too long", measured=f"{length} bytes at byte {self.position}", expected=f"at most {limit}")
        return self.take(length).decode("utf-8", "backslashreplace")

    def value(self, kind: int) -> JsonValue | LongArray:
        """One metadata value of ggml's value type `kind`."""
        if kind == _ARRAY:
            return self._array()
        if kind not in _LEAST_BYTES:
            raise GgufFault("unknown metadata type", measured=f"{kind} at byte {self.position}", expected="0 to 12")
        return self._item(kind)

    def _item(self, kind: int) -> JsonValue:
        if kind == _STRING:
            return self.string(_MAX_STRING_BYTES)
        form = _SCALARS[kind]
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        if isinstance(value, float):
            return (float(str(np.float32(value))) if kind == _FLOAT32 else value) if math.isfinite(value) else None
        return value

    def _array(self) -> JsonValue | LongArray:
        """Items of one kind; llama.cpp has no arrays of arrays."""
        kind, length = self.number("<I"), self.number("<Q")
        if kind not in _LEAST_BYTES:
            raise GgufFault("unknown array type", measured=f"{kind} at byte {self.position}", expected="0 to 12, not an array")
        self.expect(length, _LEAST_BYTES[kind], "array items")
        self._kept += min(length, MAX_KEPT_ITEMS)
        if length <= MAX_KEPT_ITEMS and self._kept <= _MAX_KEPT_IN_ALL:
            return [self._item(kind) for _ in range(length)]
        if kind == _STRING:
            for _ in range(length):
                self.skip(self.number("<Q"))
            return LongArray("string", length)
        self.skip(length * _LEAST_BYTES[kind])
        return LongArray(_SCALARS[kind].strip("<"), length)


def _entry(cursor: _Cursor) -> _Entry:
    name = cursor.string(_MAX_NAME_BYTES)
    dimensions = cursor.number("<I")
    if dimensions > _MAX_DIMENSIONS:
        raise GgufFault("too many dimensions", tensor=name, measured=dimensions, expected=f"at most {_MAX_DIMENSIONS}")
    extents = tuple(cursor.number("<Q") for _ in range(dimensions))
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    if kind not in GGML_TYPES:
        raise GgufFault("unknown ggml type", tensor=name, measured=kind, expected="a type of mainline llama.cpp")
    dtype, block, block_bytes = GGML_TYPES[kind]
    count = math.prod(extents)
    if count >= 1 << 63 or (extents and extents[0] % block):
        raise GgufFault("the first extent does not fill whole blocks, or the size overflows", tensor=name, measured=str(extents), expected=f"a multiple of {block}")
    return _Entry(name, dtype, tuple(reversed(extents)), offset, count // block * block_bytes)


def _place(entries: list[_Entry], data_start: int, alignment: int, size_bytes: int) -> tuple[Tensor, ...]:
    """Tensors at their file offsets: aligned, inside the file, apart from each other, each name once."""
    found: list[Tensor] = []
    names: set[str] = set()
    end = data_start
    for item in sorted(entries, key=lambda entry: (entry.offset, entry.size_bytes)):
        start = data_start + item.offset
        stop = start + item.size_bytes
        if item.name in names:
            raise GgufFault("a tensor stands twice", tensor=item.name, measured="twice", expected="each name once")
        if item.offset % alignment:
            raise GgufFault("a tensor is not aligned", tensor=item.name, measured=f"offset {item.offset}", expected=f"a multiple of {alignment}")
        if start < end:
            raise GgufFault("two tensors share bytes", tensor=item.name, measured=f"starts at {start}", expected=f"at {end} or later")
        if stop > size_bytes:
            raise GgufFault("the file ends before its tensors do", tensor=item.name, measured=f"{size_bytes} bytes", expected=f"{stop} bytes")
        names.add(item.name)
        end = stop
        found.append(Tensor(item.name, item.dtype, item.shape, start, stop))
    return tuple(found)
