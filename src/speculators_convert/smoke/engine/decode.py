"""Draft a block, verify it, accept a prefix, commit: free functions over a batch whose rows differ in length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from speculators_convert.smoke.engine.attention import SlotCache
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.target import AnyCache, Step, Target


@dataclass(slots=True)
class State:
    """A batch in flight. The last known token of a row is the anchor; the target has consumed all before it."""

    ids: Tensor
    """Known tokens, int64 [B, S]; what stands at `length` and later is not known yet."""
    length: Tensor
    """Known tokens per row [B]."""
    active: Tensor
    """Rows that still want tokens, bool [B]; a row at rest keeps its length."""
    target_cache: AnyCache
    draft_cache: list[SlotCache]


class Proposal(NamedTuple):
    """Draft tokens in target ids [B, gamma], whether all logits were finite, bool [], and the probabilities [B, gamma, V] they were drawn from."""

    tokens: Tensor
    finite: Tensor
    weights: Tensor | None = None


class Accepted(NamedTuple):
    """Accepted draft tokens per row [B], the row's next tokens [B, gamma + 1] (the first counts + 1 are valid), and finiteness, bool []."""

    counts: Tensor
    tokens: Tensor
    finite: Tensor


Pick = Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor | None]]
"""Logits [B, local] and draft slot to: largest logit [B], draft id [B], the probabilities it was drawn from [B, draft_vocab] or None."""


def anchors(state: State) -> tuple[Tensor, Tensor]:
    """Anchor token and anchor position of each row, [B] each."""
    position = state.length - 1
    return state.ids.gather(1, position[:, None])[:, 0], position


def best(logits: Tensor) -> Tensor:
    """Greedy token [B] of logits [B, target_vocab]."""
    return logits.argmax(-1)


def propose(draft: Draft, state: State, extent: int) -> Proposal:
    """Greedy draft of a block."""
    return chain(draft, state, extent, pick_best(draft))


def pick_best(draft: Draft) -> Pick:
    """The likeliest token of each slot."""

    def pick(logits: Tensor, slot: int) -> tuple[Tensor, Tensor, None]:
        del slot
        return *draft.vocabulary.best(logits), None

    return pick


def chain(draft: Draft, state: State, extent: int, pick: Pick) -> Proposal:
    """One backbone pass, then the Markov chain slot by slot."""
    anchor, position = anchors(state)
    hidden = draft.hidden(anchor, position, state.draft_cache, extent)
    before = state.ids.gather(1, (position - 1).clamp(min=0)[:, None])[:, 0]
    return walk(draft, hidden, anchor, before, pick)


def walk(draft: Draft, hidden: Tensor, anchor: Tensor, before: Tensor, pick: Pick) -> Proposal:
    """The Markov chain over hidden [B, slots, H] after `anchor` [B] and the token `before` it [B]. d2t is applied before the next slot."""
    base = draft.base_logits(hidden)
    past, tops, weights = [before, anchor], [], []
    memory = draft.markov.start(anchor.shape[0])
    for slot in range(draft.slots):
        bias = draft.markov.bias(hidden[:, slot], past[-1 - draft.reading.markov_lag], memory)
        memory = bias.state
        if slot < draft.first:
            continue
        top, best, weight = pick(base[:, slot] + bias.logits, slot - draft.first)
        past.append(draft.target_ids[best])
        tops.append(top)
        weights += [] if weight is None else [weight]
    return Proposal(torch.stack(past[2:], 1), torch.stack(tops).isfinite().all(), torch.stack(weights, 1) if weights else None)


def score(draft: Draft, hidden: Tensor, previous: Tensor) -> Tensor:
    """Logits [B, slots, draft_vocab] of hidden [B, slots, H] when the previous tokens [B, slots] are given (target ids)."""
    memory, columns = draft.markov.start(hidden.shape[0]), []
    base = draft.base_logits(hidden)
    for slot in range(draft.slots):
        bias = draft.markov.bias(hidden[:, slot], previous[:, slot], memory)
        memory = bias.state
        columns.append(draft.vocabulary.gather(base[:, slot] + bias.logits))
    return torch.stack(columns, 1)


def verify(target: Target, state: State, tokens: Tensor, extent: int) -> Step:
    """One target pass over the anchor and the draft tokens [B, gamma]."""
    anchor, position = anchors(state)
    ids = torch.cat((anchor[:, None], tokens), 1)
    return target.forward(ids, position[:, None] + torch.arange(ids.shape[1], device=ids.device), state.target_cache, extent)


def accept_greedy(proposal: Proposal, logits: Tensor) -> Accepted:
    """Longest prefix of the draft that equals the target's argmax; the target's tokens are the output."""
    top = logits.max(-1)
    same = (top.indices[:, :-1] == proposal.tokens).to(torch.int64)
    return Accepted(same.cumprod(1).sum(1), top.indices, top.values.isfinite().all())


def commit(draft: Draft, target: Target, state: State, accepted: Accepted, fused: Tensor) -> None:
    """Write the new tokens and their context, then let active rows advance by counts + 1.

    All gamma + 1 positions are written; those that were rejected lie at or after the new anchor, where no query
    looks before the next step has overwritten them.
    """
    kept = accepted.counts + 1
    offsets = torch.arange(accepted.tokens.shape[1], device=state.ids.device)
    state.ids.scatter_(1, state.length[:, None] + offsets, accepted.tokens)
    draft.append(state.draft_cache, fused, state.length[:, None] - 1 + offsets)
    verified = state.ids.gather(1, state.length[:, None] - 1 + offsets)
    target.settle(state.target_cache, verified, kept)
    state.length += kept * state.active
