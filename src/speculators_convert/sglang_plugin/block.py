"""Drafts one block over the reduced vocabulary. SGLang's loop, with the mapping between a step's sample and its next use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.speculative.dspark_components.dspark_draft import _draft_step
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from torch import Tensor

from speculators_convert.sglang_plugin.markov import ReducedMarkov

NEVER = -1e30
"""Logit of a target token that the draft cannot name: probability exactly 0 at each temperature, and no infinity."""
NEVER_HALF = -6e4
"""The same for float16, which has no -1e30."""


def draft_block(original: Callable[..., Any], *, markov_head: Any, base_logits: Tensor, **rest: Any) -> tuple[Tensor, Tensor | None]:
    """Target ids [B, gamma] and step logits [B, gamma, target_vocab]; other heads go to SGLang's own loop."""
    if not isinstance(markov_head, ReducedMarkov):
        return original(markov_head=markov_head, base_logits=base_logits, **rest)  # type: ignore[no-any-return]
    return _reduced_block(markov_head=markov_head, base_logits=base_logits, **rest)


def _reduced_block(
    *,
    markov_head: ReducedMarkov,
    base_logits: Tensor,
    anchor_tokens: Tensor,
    draft_hidden: Tensor | None,
    step_temperatures: Tensor,
    noise: Any,
    tp_sync: Any,
    logits_out: Tensor | None = None,
    greedy_draft: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`base_logits` [B, gamma, draft_vocab], or this rank's rows of it. Nothing is kept for a greedy draft."""
    batch, gamma = base_logits.shape[:2]
    dtype = markov_head.step_logits_dtype(base_logits.dtype)
    kept = None if greedy_draft else base_logits.new_empty((batch, gamma, markov_head.targets.numel()), dtype=dtype)
    state = markov_head.init_state(draft_hidden)
    previous, tokens = anchor_tokens.long(), []
    for step in range(gamma):
        drafted, state = _draft_step(
            markov_head,
            previous,
            base_logits[:, step],
            hidden_states=None if draft_hidden is None else draft_hidden[:, step],
            state=state,
            temperatures=step_temperatures,
            noise=noise,
            step=step,
            logits_out=None if kept is None else kept[:, step],
        )
        previous = tp_sync.sync(SpecTpSyncSite.DSPARK_DRAFT, markov_head.targets[drafted])
        tokens.append(previous)
    if kept is None:
        return torch.stack(tokens, dim=1), None
    noise.offset.add_(1)
    return torch.stack(tokens, dim=1), widen(kept, markov_head.targets, markov_head.vocab_size, logits_out)


def widen(logits: Tensor, targets: Tensor, width: int, out: Tensor | None = None) -> Tensor:
    """Logits [..., draft_vocab] in their target columns of [..., width]; the other columns get `NEVER`."""
    if out is None:
        out = logits.new_empty((*logits.shape[:-1], width))
    out.fill_(NEVER_HALF if out.dtype is torch.float16 else NEVER)
    return out.index_copy_(-1, targets, logits)
