"""Layers that a dense Qwen3-VL target hands to a draft.

SGLang 0.5.23 asks the target's language model to note them, and the dense Qwen3-VL one has no such method, while its
forward pass captures what is noted (`Qwen3LLMModel`, `Qwen3VLForConditionalGeneration.set_dflash_layers_to_capture`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def set_layers(original: Callable[..., None], target: Any, layer_ids: Sequence[int] | None) -> None:
    """Note the layers, counted from 0; SGLang captures before the one that follows."""
    if layer_ids is None or not target.pp_group.is_last_rank or hasattr(target.model, "set_dflash_layers_to_capture"):
        original(target, layer_ids)
        return
    target.capture_aux_hidden_states = True
    target.model.layers_to_capture = [layer + 1 for layer in layer_ids]
