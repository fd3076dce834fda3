"""Shares the target's embedding with a draft that has its own head.

SGLang's worker shares embedding and head together and wants a plain `weight` on the head, which packed formats (GPTQ,
AWQ, compressed-tensors) do not have. A reduced draft never reads the target's head; it needs the width only.
"""

from __future__ import annotations

from typing import Any


def attach(planner: Any, *, draft_model: Any, model_runner: Any, **_: Any) -> None:
    """Runs where the worker has skipped its own sharing for a model with own vocabulary modules."""
    del planner
    if getattr(draft_model, "takes_target_embedding", False):
        from sglang.srt.lora.layers import unwrap_lora_layer  # noqa: PLC0415

        target = model_runner.model
        draft_model.attach_shared_modules(
            embed_tokens=unwrap_lora_layer(target.get_input_embeddings() if hasattr(target, "get_input_embeddings") else target.model.get_input_embeddings()),
            lm_head=unwrap_lora_layer(target.lm_head),
        )
