"""mRoPE positions of a packed verify batch, in which requests have different numbers of tokens.

SGLang 0.5.23 reshapes the packed positions to one row for each request (`ForwardBatch.compute_spec_mrope_positions`).
With compact verification there are no such rows: the reshape fails, or one request's tokens get another one's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from sglang.srt.speculative.ragged_verify import resolve_ragged_verify_layout
from torch import Tensor


def spec_positions(original: Callable[..., None], forward_batch: Any, model_runner: Any, batch: Any, seq_positions: Tensor | None = None) -> None:
    """Set `mrope_positions` [3, tokens] of a packed batch; every other batch goes to SGLang's own rule."""
    layout = resolve_ragged_verify_layout(forward_batch)
    if layout is None or seq_positions is not None:
        original(forward_batch, model_runner, batch, seq_positions=seq_positions)
        return
    positions = batch.spec_info.positions.to(torch.int64)
    inputs = batch.multimodal_inputs
    if inputs is not None and any(item is not None for item in inputs):
        owners = token_owners(layout.qo_indptr_device, positions.numel())
        positions = positions + offsets(inputs).to(device=positions.device, non_blocking=True)[owners]
    forward_batch.mrope_positions = positions.unsqueeze(0).repeat(3, 1)


def token_owners(starts: Tensor, tokens: int) -> Tensor:
    """Request of each packed token, [tokens]; `starts` [requests + 1] are the requests' first tokens. Padding belongs to request number `requests`."""
    return torch.searchsorted(starts[1:], torch.arange(tokens, device=starts.device, dtype=starts.dtype), right=True)


def offsets(inputs: Sequence[Any]) -> Tensor:
    """How far each request's mRoPE positions are from its token positions, [requests + 1] int64: 0 for text, and 0 for padding at the end."""
    none = torch.zeros(1, dtype=torch.int64)
    return torch.cat([*(none if item is None else item.mrope_position_delta.reshape(-1)[:1].cpu().to(torch.int64) for item in inputs), none])
