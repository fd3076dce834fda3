"""The deep reading against numpy on the same bytes, for each floating-point dtype and any chunk size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speculators_convert.checkpoint import Location, collect
from speculators_convert.container.header import Tensor, encode
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.spec import TensorRef
from speculators_convert.values import TensorValues, compare_rows, scan, shared_rows


def source(dtype: str, shape: tuple[int, ...], data: bytes) -> MemorySource:
    return MemorySource({"config.json": b"{}", "model.safetensors": encode([Tensor("t", dtype, shape, 0, len(data))], {}) + data})


def look(dtype: str, data: bytes, *, chunk_bytes: int = 1 << 20, shape: tuple[int, ...] | None = None) -> TensorValues:
    width = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}.get(dtype, 1)
    held = source(dtype, shape or (len(data) // width,), data)
    return scan(held, collect(held), chunk_bytes=chunk_bytes).tensors[0]


def as_bf16(values: Any) -> bytes:
    return (np.asarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()


@example(bits=[0x7F81], chunk=1)  # a signalling NaN
@given(bits=st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=200), chunk=st.integers(1, 64))
def test_not_finite_in_bf16_as_numpy_sees_it(bits: list[int], chunk: int) -> None:
    array = np.array(bits, "<u2")
    floats = (array.astype("<u4") << 16).view("<f4")
    found = look("BF16", array.tobytes(), chunk_bytes=chunk)
    bad = np.flatnonzero(~np.isfinite(floats))
    assert found.not_finite == bad.size
    assert found.first_not_finite == (int(bad[0]) if bad.size else None)
    same = array.size > 1 and not bad.size and bool(np.all(floats == floats[0]))
    assert (found.constant is not None) == same


@pytest.mark.parametrize(("dtype", "code"), [("F16", "<f2"), ("F32", "<f4"), ("F64", "<f8")])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite(dtype: str, code: str, value: float) -> None:
    array = np.linspace(-3, 3, 1000).astype(code)
    assert look(dtype, array.tobytes()).not_finite == 0
    array[637] = value
    found = look(dtype, array.tobytes(), chunk_bytes=128)
    assert (found.not_finite, found.first_not_finite) == (1, 637)


@pytest.mark.parametrize(("dtype", "bad"), [("F8_E4M3", [0x7F, 0xFF]), ("F8_E5M2", [0x7C, 0x7D, 0x7F, 0xFC, 0xFF])])
def test_eight_bit_formats(dtype: str, bad: list[int]) -> None:
    everything = bytes(range(256))
    assert look(dtype, everything).not_finite == sum(1 for item in range(256) if (item & 0x7F) >= min(bad))
    assert look(dtype, bytes([1, 2, 3])).not_finite == 0
    for item in bad:
        assert look(dtype, bytes([0, item, 0])).first_not_finite == 1


def test_eight_bit_values_are_decoded() -> None:
    assert look("F8_E4M3", bytes([0x38] * 4)).constant == 1.0
    assert look("F8_E4M3", bytes([0xBA] * 4)).constant == -1.25
    assert look("F8_E5M2", bytes([0x3C] * 4)).constant == 1.0
    assert look("F8_E5M2", bytes([0x01] * 4)).constant == 2.0**-16


def test_constant_and_zero() -> None:
    assert look("BF16", as_bf16([0.5] * 300), chunk_bytes=64).constant == 0.5
    assert look("BF16", as_bf16([0.0, -0.0] * 9)).constant == 0
    assert look("BF16", as_bf16([0.0, 1.0, -0.0])).constant is None
    assert look("BF16", as_bf16([0.25])).constant is None


@pytest.mark.parametrize("chunk", [2, 6, 1000, 1 << 14, 1 << 20])
def test_the_chunk_size_has_no_effect(chunk: int) -> None:
    values = np.random.default_rng(3).normal(0, 0.02, 40_000)
    assert look("BF16", as_bf16(values), chunk_bytes=chunk) == look("BF16", as_bf16(values))


def test_the_sample_has_the_moments_of_the_tensor() -> None:
    values = np.random.default_rng(4).normal(0.1, 0.5, 400_000)
    sample = look("F32", values.astype("<f4").tobytes()).sample
    assert sample is not None
    assert abs(sample.mean - 0.1) < 0.02
    assert abs(sample.deviation - 0.5) < 0.01
    assert abs(sample.kurtosis - 3) < 0.2
    assert 10_000 < sample.elements < 33_000


def test_integers_are_left_out_and_named() -> None:
    held = source("I64", (2,), bytes(16))
    facts = scan(held, collect(held))
    assert (facts.tensors, facts.skipped) == ((), ("t",))


def test_progress_ends_at_the_total() -> None:
    steps: list[tuple[int, int, str]] = []
    held = source("BF16", (8,), bytes(16))
    scan(held, collect(held), progress=lambda done, total, what: steps.append((done, total, what)))
    assert steps == [(16, 16, "t")]


def test_memory_is_bounded_by_a_chunk(tmp_path: Path) -> None:
    size = 64 << 20
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(encode([Tensor("t", "BF16", (size // 2,), 0, size)], {}))
        file.write(np.random.default_rng(0).integers(0, 0x7F00, size // 2, dtype="<u2").tobytes())
    (tmp_path / "config.json").write_text("{}")
    held = LocalSource(tmp_path)
    checkpoint = collect(held)
    tracemalloc.start()
    scan(held, checkpoint, chunk_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def table(rows: np.ndarray[Any, Any]) -> tuple[MemorySource, TensorRef, Location]:
    data = rows.astype("<u2").tobytes()
    held = source("BF16", rows.shape, data)
    location = collect(held).tensors["t"]
    item = location.tensor
    return held, TensorRef(file=location.file, name="t", dtype=item.dtype, shape=item.shape, start=item.start, stop=item.stop), location


@given(seed=st.integers(0, 1000), chunk=st.integers(1, 400), wrong=st.sets(st.integers(0, 19), max_size=5), order=st.booleans())
def test_rows_are_compared_through_the_table(seed: int, chunk: int, wrong: set[int], order: bool) -> None:
    generator = np.random.default_rng(seed)
    target = generator.integers(0, 0x7F00, (50, 4))
    ids = generator.permutation(50)[:20]
    ids = np.sort(ids) if order else ids
    draft = target[ids].copy()
    for row in wrong:
        draft[row, row % 4] ^= 1
    mine, own, _ = table(draft)
    theirs, _, location = table(target)
    found = compare_rows(mine, own, theirs, location, ids.astype(np.int64), chunk_bytes=chunk)
    assert found is not None
    assert (found.rows, found.differing) == (20, len(wrong))
    assert found.first == ((min(wrong), int(ids[min(wrong)])) if wrong else None)


def test_rows_outside_the_target_differ() -> None:
    mine, own, _ = table(np.zeros((3, 4)))
    theirs, _, location = table(np.zeros((5, 4)))
    found = compare_rows(mine, own, theirs, location, np.array([0, 9, -1]))
    assert found is not None
    assert (found.differing, found.first) == (2, (1, 9))


def test_tables_of_another_form_are_not_compared() -> None:
    mine, own, _ = table(np.zeros((3, 4)))
    theirs, _, narrow = table(np.zeros((5, 6)))
    assert compare_rows(mine, own, theirs, narrow, None) is None
    assert shared_rows(mine, {"lm_head.weight": own}, None, theirs, {"lm_head.weight": narrow}) == ()
    assert shared_rows(mine, {"lm_head.weight": own}, None, theirs, {}) == ()
