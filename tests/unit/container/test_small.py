"""Small tables decoded from bytes."""

from __future__ import annotations

import numpy as np
import pytest

from speculators_convert.container.header import DTYPE_BITS
from speculators_convert.container.small import decode


def test_offsets_and_flags() -> None:
    offsets = decode(np.array([-1, 1 << 40], "<i8").tobytes(), "I64", (2,))
    flags = decode(b"\x00\x01\x02", "BOOL", (3,))
    assert offsets is not None
    assert flags is not None
    assert offsets.tolist() == [-1, 1 << 40]
    assert flags.tolist() == [0, 1, 2]


def test_an_empty_table() -> None:
    table = decode(b"", "I64", (0,))
    assert table is not None
    assert table.shape == (0,)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_each_dtype_is_decoded_or_refused(dtype: str) -> None:
    table = decode(bytes(16), dtype, (16 * 8 // DTYPE_BITS[dtype],))
    assert (table is None) == (dtype in {"BF16", "C64", "F4"} or dtype.startswith(("F6_", "F8_")))
