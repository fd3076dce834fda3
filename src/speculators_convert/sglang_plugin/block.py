"""Drafts one block: SGLang's loop, with the mapping between a step's sample and its next use.

Two kinds of heads need it. A reduced one samples draft ids. A recurrent one of a bonus-anchor draft also reads the anchor's
row, which is not sampled (speculators `models/dspark`): SGLang drops that row before its loop starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.speculative.dspark_components.dspark_draft import _draft_step, step_logits_width
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from torch import Tensor

from speculators_convert.sglang_plugin.markov import ReducedMarkov, advance

NEVER = -1e30
"""Logit of a target token that the draft cannot name: probability exactly 0 at each temperature, and no infinity."""
NEVER_HALF = -6e4
"""The same for float16, which has no -1e30."""


def keep_anchor_state(result: tuple[Tensor, Tensor], hidden_states: Tensor, *, bs: int, gamma: int) -> None:
    """Hang the anchor's row [B, H] on the sampled rows [B, gamma, H] that SGLang passes on."""
    result[1].anchor_state = hidden_states.view(bs, gamma + 1, -1)[:, 0]  # type: ignore[attr-defined]


def draft_block(original: Callable[..., Any], *, markov_head: Any, **rest: Any) -> tuple[Tensor, Tensor | None]:
    """Target ids [B, gamma] and step logits [B, gamma, target_vocab]; heads without need of us go to SGLang's own loop."""
    if isinstance(markov_head, ReducedMarkov) or getattr(markov_head, "starts_at_anchor", False):
        return _draft_block(markov_head=markov_head, **rest)
    return original(markov_head=markov_head, **rest)  # type: ignore[no-any-return]


def _draft_block(
    *,
    markov_head: Any,
    base_logits: Tensor,
    anchor_tokens: Tensor,
    draft_hidden: Tensor | None,
    step_temperatures: Tensor,
    noise: Any,
    tp_sync: Any,
    logits_out: Tensor | None = None,
    greedy_draft: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`base_logits` [B, gamma, draft_vocab], or this rank's columns of it. Nothing is kept for a greedy draft."""
    targets = markov_head.targets if isinstance(markov_head, ReducedMarkov) else None
    kept = None if greedy_draft else _step_logits(markov_head, base_logits, targets, logits_out)
    previous, tokens = anchor_tokens.long(), []
    state = _first_state(markov_head, previous, draft_hidden)
    for step in range(base_logits.shape[1]):
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
        previous = tp_sync.sync(SpecTpSyncSite.DSPARK_DRAFT, drafted if targets is None else targets[drafted])
        tokens.append(previous)
    if kept is not None:
        noise.offset.add_(1)
        kept = kept if targets is None else widen(kept, targets, markov_head.vocab_size, logits_out)
    return torch.stack(tokens, dim=1), kept


def _step_logits(head: Any, base_logits: Tensor, targets: Tensor | None, logits_out: Tensor | None) -> Tensor:
    """Where the steps write: SGLang's buffer, or one of the draft's width that is widened into it afterwards."""
    if targets is None and logits_out is not None:
        return logits_out
    width = step_logits_width(head, base_logits.shape[-1]) if targets is None else targets.numel()
    return base_logits.new_empty((*base_logits.shape[:2], width), dtype=head.step_logits_dtype(base_logits.dtype))


def _first_state(head: Any, anchors: Tensor, draft_hidden: Tensor | None) -> Tensor | None:
    state: Tensor | None = head.init_state(draft_hidden)
    if state is None or not getattr(head, "starts_at_anchor", False):
        return state
    return advance(head, anchors, draft_hidden.anchor_state, state)  # type: ignore[union-attr]


def widen(logits: Tensor, targets: Tensor, width: int, out: Tensor | None = None) -> Tensor:
    """Logits [..., draft_vocab] in their target columns of [..., width]; the other columns get `NEVER`."""
    if out is None:
        out = logits.new_empty((*logits.shape[:-1], width))
    out.fill_(NEVER_HALF if out.dtype is torch.float16 else NEVER)
    return out.index_copy_(-1, targets, logits)
