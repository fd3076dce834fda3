"""Decode small integer and boolean tensors (`d2t`, `t2d`) from bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMPY = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "u1", "F32": "<f4", "F64": "<f8", "F16": "<f2"}


def decode(data: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The array, shaped; None for a dtype that numpy has not (BF16 and the 8-bit floats). BOOL comes as uint8, so values other than 0 and 1 stay visible."""
    kind = _NUMPY.get(dtype)
    return None if kind is None else np.frombuffer(data, kind).reshape(shape)
