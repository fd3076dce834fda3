"""A key/value cache for transformers models in which each row of a batch keeps its own length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values [B, kv_heads, S, D]; slot s of a row belongs to position s."""

    is_compileable = True
    is_sliding = False

    def __init__(self, owner: TargetCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate for the whole run."""
        batch, heads, _, width = key_states.shape
        self.keys = key_states.new_zeros(batch, self._owner.capacity, heads, width)
        self.values = value_states.new_zeros(batch, self._owner.capacity, heads, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, kv_heads, T, D] at the step's positions and return all slots below its extent."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._store(self.keys, key_states), self._store(self.values, value_states)

    def _store(self, slots: Any, states: Tensor) -> Tensor:
        owner = self._owner
        slots[owner.rows, owner.positions] = states.transpose(1, 2)
        seen: Tensor = slots[:, : owner.extent].transpose(1, 2)
        return seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Unused: masks are passed ready-made."""
        del query_length
        return self._owner.extent, 0

    def get_seq_length(self) -> int:
        """Unused: positions are passed explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Slots."""
        return self._owner.capacity


class TargetCache(Cache):
    """One `_SlotLayer` per target layer; `aim` says where the next forward writes and how far it reads."""

    def __init__(self, layers: int, batch: int, capacity: int, device: str) -> None:
        self.capacity, self.extent = capacity, capacity
        self.rows = torch.arange(batch, device=device)[:, None]
        self.positions = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])

    def aim(self, positions: Tensor, extent: int) -> None:
        """Next forward: write at `positions` [B, T], read slots below `extent`."""
        self.positions, self.extent = positions, extent


def causal_masks(positions: Tensor, extent: int, windows: Mapping[str, int | None]) -> dict[str, Tensor]:
    """Per layer type, [B, 1, T, extent] bool: slots up to the query's own position, at most `window` of them."""
    slots, queries = torch.arange(extent, device=positions.device), positions[:, None, :, None]
    masks = {}
    for kind, window in windows.items():
        seen = slots <= queries
        masks[kind] = seen if window is None else seen & (slots > queries - window)
    return masks
