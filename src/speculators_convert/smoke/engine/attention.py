"""Rotary positions, masks and the key/value cache of the draft layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.spec import Rope


@dataclass(slots=True)
class SlotCache:
    """Keys and values of one layer, [B, S, kv_heads, head_dim]: slot s of a row belongs to position s.

    A rejected position is not removed: it is overwritten by the next step before any mask lets a query see it.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], like: Tensor) -> SlotCache:
        """Zeros of `shape` [B, S, kv_heads, head_dim] with the dtype and device of `like`."""
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    def write(self, keys: Tensor, values: Tensor, positions: Tensor) -> None:
        """Store keys and values [B, T, kv_heads, head_dim] at `positions` [B, T]."""
        rows = torch.arange(positions.shape[0], device=positions.device)[:, None]
        self.keys[rows, positions] = keys
        self.values[rows, positions] = values


class Rotary:
    """Half-rotation over the head; `apply` wants [B, T, heads, head_dim]."""

    def __init__(self, rope: Rope, head_dim: int, max_positions: int | None, device: str) -> None:
        self._scale = 1.0
        if rope.type == "default":
            if rope.theta is None:
                raise SmokeError("rope theta is not known", where="rope", hint="state it with --set rope_theta=...")
            steps = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
            self._frequencies = (1.0 / rope.theta**steps).to(device)
        else:
            self._frequencies, self._scale = _scaled(rope, head_dim, max_positions, device)

    def angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B, T, 1, head_dim] at `positions` [B, T]."""
        half = positions[..., None].float() * self._frequencies
        both = torch.cat((half, half), -1)[:, :, None]
        return (both.cos() * self._scale).to(dtype), (both.sin() * self._scale).to(dtype)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [B, T, heads, head_dim] by `angles` [B, T, 1, head_dim]."""
    cos, sin = angles
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def block_mask(positions: Tensor, slots: int, context: int, *, window: int | None, causal: bool) -> Tensor:
    """[B, 1, slots, context + slots], True where a slot may look. Context: before the anchor, at most `window` of it."""
    where = torch.arange(context, device=positions.device)
    seen = where < positions[:, None]
    if window is not None:
        seen = seen & (where >= positions[:, None] - window)
    own = torch.ones(slots, slots, dtype=torch.bool, device=positions.device)
    own = own.tril() if causal else own
    batch = positions.shape[0]
    return torch.cat((seen[:, None].expand(batch, slots, context), own.expand(batch, slots, slots)), -1)[:, None]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention of q [B, T, heads, D] over k and v [B, S, kv_heads, D]; returns [B, T, heads * D]."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    grouped = q.shape[1] != k.shape[1]
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
    return mixed.transpose(1, 2).flatten(2)


def _scaled(rope: Rope, head_dim: int, max_positions: int | None, device: str) -> tuple[Tensor, float]:
    """Inverse frequencies and the attention factor of a rope type that transformers knows."""
    from transformers import Qwen3Config  # noqa: PLC0415
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415

    if rope.type not in ROPE_INIT_FUNCTIONS:
        raise SmokeError("rope type is not known", where="rope", measured=rope.type, expected=", ".join(sorted(ROPE_INIT_FUNCTIONS)))
    parameters: dict[str, Any] = {"rope_type": rope.type, "rope_theta": rope.theta, **rope.scaling}
    config = Qwen3Config(head_dim=head_dim, max_position_embeddings=max_positions or 32768, rope_parameters=parameters)
    frequencies, factor = ROPE_INIT_FUNCTIONS[rope.type](config, torch.device(device))
    return frequencies, float(factor)
