"""Constants as stored numbers, and tensors widened by constant columns and rows. Bytes only; nothing is computed in floating point."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.parts import Part, source_name
from speculators_convert.rewrite.plan import Copy, Literal, Piece, Rows, Segment
from speculators_convert.spec import TensorRef

_FORMATS = {"F32": "<f", "F16": "<e", "F64": "<d"}


def number(value: float, dtype: str) -> bytes:
    """`value` as `dtype` stores it; it must be exact there."""
    if dtype == "BF16":
        stored = struct.pack("<f", value)[2:]
        exact = struct.unpack("<f", b"\0\0" + stored)[0] == value
    elif dtype in _FORMATS:
        stored = struct.pack(_FORMATS[dtype], value)
        exact = struct.unpack(_FORMATS[dtype], stored)[0] == value
    else:
        raise RefusedError("these weights cannot be padded", measured=dtype, expected="BF16, F16, F32 or F64", hint="rewrite an unquantized draft")
    if not exact:
        raise ValueError(f"{value} is not exact in {dtype}")
    return stored


def columns(values: Sequence[float], dtype: str) -> bytes:
    """Some numbers side by side."""
    return b"".join(number(value, dtype) for value in values)


def width_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPE_BITS[dtype] // 8


def rows_of(ref: TensorRef, cuts: Sequence[tuple[int, bytes]], *, first: int = 0, count: int | None = None) -> Rows:
    """Source rows `first` to `first + count`, cut into (columns, padding) pieces."""
    size = width_bytes(ref.dtype)
    row = ref.shape[-1] * size
    pieces = tuple(Piece(take=taken * size, pad=pad) for taken, pad in cuts)
    return Rows(file=ref.file, start=ref.start + first * row, row_bytes=row, pieces=pieces, runs=(0, ref.shape[0] - first if count is None else count))


def range_of(ref: TensorRef, *, first: int = 0, count: int | None = None) -> Copy:
    """Elements `first` to `first + count` of a vector."""
    size = width_bytes(ref.dtype)
    return Copy(file=ref.file, start=ref.start + first * size, stop=ref.stop if count is None else ref.start + (first + count) * size)


def scattered(ref: TensorRef, runs: Sequence[int], pad: bytes, filler: bytes) -> Rows:
    """Each source row with `pad` after it, and `filler` rows where `runs` says so."""
    row = ref.shape[1] * width_bytes(ref.dtype)
    return Rows(file=ref.file, start=ref.start, row_bytes=row, pieces=(Piece(take=row, pad=pad),), runs=tuple(runs), filler=filler)


def constant(values: Sequence[float], dtype: str, count: int = 1) -> Literal:
    """A row of constants, `count` times."""
    return Literal(data=columns(values, dtype), count=count)


def computed(role: str, ref: TensorRef, shape: tuple[int, ...], segments: Sequence[Segment], why: str) -> Part:
    """A tensor made of another one's bytes and constants."""
    return Part(role, role, ref.dtype, shape, tuple(segments), (source_name(ref),), copied=False, why=why)
