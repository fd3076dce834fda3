"""A target's own cache, one request at a time: for models whose layers keep more than keys and values per position."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


@dataclass(slots=True)
class NativeCache:
    """The model's cache, and what `rewind` needs to undo its last forward."""

    cache: Any
    length: int = 0
    """Tokens that the cache has consumed."""
    _before: int = 0
    _kept: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Any) -> NativeCache:
        """An empty cache for a model of `config`."""
        return cls(DynamicCache(config=config))

    def advance(self, tokens: int) -> None:
        """Note a forward over `tokens`, before it is made; recurrent and sliding layers are copied."""
        self._before = self.length
        self.length += tokens
        self._kept = {index: copy.deepcopy(layer) for index, layer in enumerate(self.cache.layers) if not _plain(layer)}

    def rewind(self, keep: int) -> int:
        """Forget the last forward but for its first `keep` tokens; returns how many of these must be run again."""
        if keep == self.length - self._before:
            return 0
        again = keep if self._kept else 0
        self.length = self._before + keep - again
        for index, layer in enumerate(self.cache.layers):
            if index in self._kept:
                self.cache.layers[index] = self._kept[index]
            elif layer.is_initialized:
                layer.keys, layer.values = layer.keys[..., : self.length, :], layer.values[..., : self.length, :]
        return again


def _plain(layer: Any) -> bool:
    """Keys and values of every position, and nothing else."""
    return type(layer) is DynamicLayer


def only_attention(config: Any) -> bool:
    """All layers keep keys and values per position (full or sliding attention)."""
    return all(type(layer).__name__ in {"DynamicLayer", "DynamicSlidingWindowLayer"} for layer in DynamicCache(config=config).layers)
