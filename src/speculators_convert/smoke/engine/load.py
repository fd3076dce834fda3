"""Weights of a draft as torch tensors, read from the byte ranges that its spec names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, TensorRef

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Placement:
    """Type and device of the weights and states of a run."""

    dtype: torch.dtype = torch.float32
    device: str = "cpu"


def placement(dtype: str, device: str) -> Placement:
    """The placement that names such as `float32` and `cuda` stand for."""
    if dtype not in NAMES:
        raise SmokeError("the engine does not run in this dtype", where="--dtype", measured=dtype, expected=" or ".join(NAMES))
    if device != "cpu" and not torch.cuda.is_available():
        raise SmokeError(
            "no CUDA device is usable", where="--device", measured=device, expected="cpu", hint="run with --device cpu, or install a torch build that matches the driver"
        )
    return Placement(NAMES[dtype], device)


def read_tensor(source: Source, ref: TensorRef) -> Tensor:
    """The tensor as stored, on the CPU."""
    dtype = _DTYPES.get(ref.dtype)
    if dtype is None:
        raise SmokeError(
            "the engine cannot compute with this stored dtype",
            where=ref.name,
            measured=ref.dtype,
            expected=", ".join(sorted(_DTYPES)),
            hint="run a checkpoint that is not quantized",
        )
    data = bytearray(source.read(ref.file, ref.start, ref.stop))
    return torch.frombuffer(data, dtype=dtype).reshape(ref.shape) if data else torch.empty(ref.shape, dtype=dtype)


def read_weights(spec: DraftSpec, source: Source, where: Placement) -> dict[str, Tensor]:
    """Role to tensor; floating tensors in the run's dtype, tables (`d2t`, `t2d`) as stored."""
    weights = {}
    for role, ref in spec.tensors.items():
        tensor = read_tensor(source, ref)
        weights[role] = tensor.to(where.device, where.dtype) if tensor.is_floating_point() else tensor.to(where.device)
    return weights
