"""Reads all weights once, in pieces: values that no trained tensor has, and rows that should equal the target's. numpy only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculators_convert.checkpoint import Checkpoint, Location
from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.sources import Source
from speculators_convert.spec import TensorRef

CHUNK_BYTES = 1 << 20
SAMPLE_ELEMENTS = 1 << 14
_BLOCK_BYTES = 1 << 18
"""Pieces that stay in a core's cache while several passes go over them."""
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a dtype is looked at: an unsigned integer of its width, the bits without the sign, and the first pattern that is not finite."""

    code: str
    magnitude: int
    not_finite: int


_KINDS = {
    "BF16": _Kind("<u2", 0x7FFF, 0x7F80),
    "F16": _Kind("<u2", 0x7FFF, 0x7C00),
    "F32": _Kind("<u4", 0x7FFFFFFF, 0x7F800000),
    "F64": _Kind("<u8", (1 << 63) - 1, 0x7FF0 << 48),
    "F8_E4M3": _Kind("u1", 0x7F, 0x7F),
    "F8_E5M2": _Kind("u1", 0x7F, 0x7C),
}
"""Floating-point dtypes; OCP 8-bit formats: E4M3 has no infinity and one NaN pattern."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Moments of evenly spaced elements."""

    elements: int
    mean: float
    deviation: float
    kurtosis: float
    largest: float


@dataclass(frozen=True, slots=True)
class TensorValues:
    """What one tensor holds. `constant` is the value when all elements are equal; a tensor of one element is never constant."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    not_finite: int
    first_not_finite: int | None
    constant: float | None
    sample: Sample | None


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Rows of a table that should equal the target's."""

    role: str
    rows: int
    differing: int
    first: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """All that the weights say; `rows` only with a target."""

    tensors: tuple[TensorValues, ...]
    skipped: tuple[str, ...] = ()
    rows: tuple[RowComparison, ...] = ()


def scan(source: Source, checkpoint: Checkpoint, *, chunk_bytes: int = CHUNK_BYTES, progress: Progress | None = None) -> ValueFacts:
    """Look at each floating-point tensor once, in file order. Memory is a chunk and its block, whatever the tensors' size."""
    known = {name: item for name, item in checkpoint.tensors.items() if item.tensor.dtype in _KINDS}
    total, done, found = sum(item.tensor.size_bytes for item in known.values()), 0, []
    for name, location in sorted(known.items(), key=lambda item: (item[1].file, item[1].tensor.start)):
        found.append(_tensor_values(source, name, location, chunk_bytes))
        done += location.tensor.size_bytes
        if progress is not None:
            progress(done, total, name)
    return ValueFacts(tuple(found), tuple(sorted(set(checkpoint.tensors) - set(known))))


def shared_rows(
    source: Source, tensors: Mapping[str, TensorRef], targets: NDArray[np.int64] | None, target_source: Source, theirs: Mapping[str, Location], *, chunk_bytes: int = CHUNK_BYTES
) -> tuple[RowComparison, ...]:
    """The draft's own head (through `targets`) and embedding against the target's, by role; tables that cannot be compared are left out."""
    found = []
    for role in ("embed_tokens.weight", "lm_head.weight"):
        own, other = tensors.get(role), theirs.get(role)
        if own is not None and other is not None:
            ids = targets if role == "lm_head.weight" else None
            found.append(compare_rows(source, own, target_source, other, ids, role=role, chunk_bytes=chunk_bytes))
    return tuple(item for item in found if item is not None)


def compare_rows(
    source: Source, own: TensorRef, target_source: Source, theirs: Location, targets: NDArray[np.int64] | None, *, role: str = "", chunk_bytes: int = CHUNK_BYTES
) -> RowComparison | None:
    """Each row of `own` against the target's row of the same id, or of `targets[id]`; None when the two tables cannot be compared."""
    other = theirs.tensor
    if own.dtype != other.dtype or own.dtype not in DTYPE_BITS or len(own.shape) != 2 or len(other.shape) != 2 or own.shape[1] != other.shape[1] or not own.shape[0]:
        return None
    ids = np.arange(own.shape[0], dtype=np.int64) if targets is None else targets
    if ids.size != own.shape[0]:
        return None
    width = own.shape[1] * DTYPE_BITS[own.dtype] // 8
    differing, first = 0, None
    for start, stop in _runs(ids, max(1, chunk_bytes // max(width, 1))):
        wanted = ids[start:stop]
        mine = _rows(source.read(own.file, own.start + start * width, own.start + stop * width), width)
        low, high = int(wanted.min()), int(wanted.max())
        if low < 0 or high >= other.shape[0]:
            wrong = (wanted < 0) | (wanted >= other.shape[0])
        else:
            block = _rows(target_source.read(theirs.file, other.start + low * width, other.start + (high + 1) * width), width)
            wrong = np.any(mine != block[wanted - low], axis=1)
        places = np.flatnonzero(wrong)
        if places.size and first is None:
            first = (start + int(places[0]), int(wanted[places[0]]))
        differing += int(places.size)
    return RowComparison(role or own.name, own.shape[0], differing, first)


def _runs(ids: NDArray[np.int64], rows: int) -> Iterator[tuple[int, int]]:
    """Runs of draft rows whose target rows span at most `rows`, so that both reads stay bounded."""
    start = 0
    while start < ids.size:
        window = ids[start : start + rows]
        span = np.maximum.accumulate(window) - np.minimum.accumulate(window)
        length = max(1, int(np.searchsorted(span, rows, side="left")))
        yield start, start + length
        start += length


def _rows(data: bytes, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def _tensor_values(source: Source, name: str, location: Location, chunk_bytes: int) -> TensorValues:
    tensor, kind = location.tensor, _KINDS[location.tensor.dtype]
    itemsize = np.dtype(kind.code).itemsize
    elements = tensor.size_bytes // itemsize
    step = max(1, elements // SAMPLE_ELEMENTS)
    chunk = max(itemsize, chunk_bytes // itemsize * itemsize)
    first_bits, equal, top, not_finite, first, position = None, elements > 1, 0, 0, None, 0
    picked: list[NDArray[Any]] = []
    for start in range(tensor.start, tensor.stop, chunk):
        data = np.frombuffer(source.read(location.file, start, min(start + chunk, tensor.stop)), kind.code)
        for begin in range(0, data.size, _BLOCK_BYTES // itemsize):
            block = data[begin : begin + _BLOCK_BYTES // itemsize]
            magnitude = block & kind.magnitude
            largest = int(magnitude.max())
            if largest >= kind.not_finite:
                bad = np.flatnonzero(magnitude >= kind.not_finite)
                not_finite += int(bad.size)
                first = position + int(bad[0]) if first is None else first
            first_bits = block[0] if first_bits is None else first_bits
            equal = equal and bool((block == first_bits).all())
            top = max(top, largest)
            picked.append(block[-position % step :: step].copy())
            position += block.size
    values = _as_float(np.concatenate(picked), tensor.dtype) if picked else np.zeros(0)
    same = equal or (elements > 1 and top == 0)
    return TensorValues(
        name=name,
        file=location.file,
        dtype=tensor.dtype,
        shape=tensor.shape,
        elements=elements,
        not_finite=not_finite,
        first_not_finite=first,
        constant=float(values[0]) if same and not not_finite else None,
        sample=None if not_finite or not values.size else _sample(values),
    )


def _as_float(values: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a signalling NaN is one more value that is not finite
        if dtype == "BF16":
            return (values.astype("<u4") << 16).view("<f4").astype(np.float64)
        if dtype in ("F16", "F32", "F64"):
            return values.view({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(np.float64)
    return _eight_bit(values, exponent_bits=4 if dtype == "F8_E4M3" else 5)


def _eight_bit(values: NDArray[Any], exponent_bits: int) -> NDArray[np.float64]:
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = ((values >> mantissa_bits) & ((1 << exponent_bits) - 1)).astype(np.int64)
    fraction = (values & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    return np.where(values >= 128, -size, size)


def _sample(values: NDArray[np.float64]) -> Sample:
    mean = float(values.mean())
    squares = np.square(values - mean)
    variance = float(squares.mean())
    fourth = float(np.square(squares).mean())
    return Sample(int(values.size), mean, variance**0.5, fourth / variance**2 if variance > 0 else 0.0, float(np.abs(values).max()))
