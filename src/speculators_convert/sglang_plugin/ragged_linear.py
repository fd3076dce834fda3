"""Gated delta net (GDN) layers over a packed verify batch, in which requests have different numbers of tokens.

SGLang 0.5.23 verifies them over gamma + 1 tokens for each request (`GDNAttnBackend.forward_extend`), packed or not. Here
the packed tokens are laid out in such rows first, and the result is packed again. A request's rows after its last token
come after everything that can be accepted, so no state of theirs is ever committed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.speculative.ragged_verify import resolve_ragged_verify_layout
from torch import Tensor


def forward_extend(original: Callable[..., Tensor], backend: Any, layer: Any, forward_batch: Any, mixed_qkv: Tensor, a: Tensor, b: Tensor, **rest: Any) -> Tensor:
    """Output [1, tokens, heads, width] of a packed verify batch; every other batch goes to SGLang as it is."""
    layout = resolve_ragged_verify_layout(forward_batch) if forward_batch.forward_mode.is_target_verify() else None
    if layout is None:
        return original(backend, layer=layer, forward_batch=forward_batch, mixed_qkv=mixed_qkv, a=a, b=b, **rest)
    width, packed = int(forward_batch.spec_info.draft_token_num), backend.forward_metadata
    requests = packed.query_start_loc.shape[0] - 1
    slots = dense_slots(packed.query_start_loc, mixed_qkv.shape[0], width)
    dense = copy.copy(packed)
    dense.query_start_loc = torch.arange(0, requests * width + 1, width, dtype=torch.int32, device=mixed_qkv.device)
    backend.forward_metadata = dense
    try:
        rows = (scatter(item, slots, requests * width) for item in (mixed_qkv, a, b))
        out = original(backend, layer=layer, forward_batch=forward_batch, **dict(zip(("mixed_qkv", "a", "b"), rows, strict=True)), **rest)
    finally:
        backend.forward_metadata = packed
    return gather(out, slots)


def dense_slots(starts: Tensor, tokens: int, width: int) -> Tensor:
    """Row of each packed token among requests x `width` rows, [tokens] int64; tokens of no request get one row more. Reads nothing back, so it can be captured."""
    position = torch.arange(tokens, device=starts.device, dtype=starts.dtype)
    owner = torch.searchsorted(starts[1:], position, right=True)
    return (owner * width + (position - starts[owner])).clamp_(max=(starts.shape[0] - 1) * width)


def scatter(packed: Tensor, slots: Tensor, rows: int) -> Tensor:
    """Packed tokens [tokens, ...] in their rows [rows, ...]; rows without a token are 0."""
    return packed.new_zeros((rows + 1, *packed.shape[1:])).index_copy_(0, slots, packed)[:rows]


def gather(dense: Tensor, slots: Tensor) -> Tensor:
    """Rows [1, rows, ...] back as packed tokens [1, tokens, ...]; tokens of no request are 0."""
    return torch.cat([dense, dense.new_zeros((1, 1, *dense.shape[2:]))], dim=1).index_select(1, slots)
