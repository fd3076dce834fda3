"""Tensor roles: the names of the Speculators layout. A format maps its own names to these."""

from __future__ import annotations

import re
from collections.abc import Callable

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.spec import TensorRef

_ROLE = re.compile(
    r"(embed_tokens|lm_head|fc|hidden_norm|norm)\.weight"
    r"|d2t|t2d"
    r"|layers\.(0|[1-9]\d{0,3})\.(self_attn\.(q|k|v|o)_proj\.(weight|bias)|self_attn\.(q|k)_norm\.weight|mlp\.(gate|up|down)_proj\.weight|(input|post_attention)_layernorm\.weight)"
    r"|markov_head\.(markov_w[12]\.weight|(gate|joint)_proj\.(weight|bias))"
    r"|confidence_head\.proj\.(weight|bias)"
)


def is_role(name: str) -> bool:
    """Whether `name` is a tensor name of the Speculators layout."""
    return _ROLE.fullmatch(name) is not None


def resolve(checkpoint: Checkpoint, rename: Callable[[str], str] = str) -> tuple[dict[str, TensorRef], tuple[str, ...]]:
    """Role to tensor, and the names that have no role. `rename` turns a format's own name into a role; a plain name wins over a renamed one."""
    tensors: dict[str, TensorRef] = {}
    unknown: list[str] = []
    for name, location in sorted(checkpoint.tensors.items(), key=lambda item: (rename(item[0]) != item[0], item[0])):
        role = rename(name)
        if not is_role(role) or role in tensors:
            unknown.append(name)
            continue
        tensor = location.tensor
        tensors[role] = TensorRef(file=location.file, name=name, dtype=tensor.dtype, shape=tensor.shape, start=tensor.start, stop=tensor.stop)
    return tensors, tuple(sorted(unknown))


def layer_count(tensors: dict[str, TensorRef]) -> int | None:
    """Highest layer number plus one; None when there is no layer tensor."""
    numbers = [int(role.split(".")[1]) for role in tensors if role.startswith("layers.")]
    return max(numbers) + 1 if numbers else None
