"""Scores of one reading on a text that the target has read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from speculators_convert.smoke.engine import decode
from speculators_convert.smoke.engine.attention import SlotCache
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.target import Target

FIRST_ANCHOR, ANCHOR_STRIDE = 24, 3
BATCH_ANCHORS = 32


@dataclass(frozen=True, slots=True)
class Passage:
    """A text as the target sees it: ids [T], logits [T, V] after each token (where wanted), states [T, H] by tap; tokens from `output` on are its own."""

    ids: Tensor
    logits: Tensor | None
    states: dict[int, Tensor]
    output: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Continuations decoded with a draft: verify steps and the tokens they gave."""

    steps: int
    tokens: int

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.steps + other.steps, self.tokens + other.tokens)


@torch.no_grad()
def read(target: Target, ids: Sequence[int], output: int, taps: Sequence[int], *, logits: bool) -> Passage:
    """One target pass over a text; keeps the states of `taps`."""
    tokens = torch.tensor([list(ids)], device=target.device)
    seen = target.plain(tokens, target.plain_cache(), len(ids) if logits else 1)[0]
    return Passage(tokens[0], seen if logits else None, {tap: target.fused((tap,))[0] for tap in taps}, output)


def text_anchors(length: int, slots: int) -> range:
    """Blocks in a text: every third position, after enough context; a short text begins earlier. None when it is shorter than a block."""
    return range(min(FIRST_ANCHOR, max(length // 4, 1)), length - slots, ANCHOR_STRIDE)


@torch.no_grad()
def divergence(draft: Draft, passage: Passage, anchors: Sequence[int]) -> tuple[float, ...]:
    """KL(target || draft) in nats of each drafted token, the real tokens before it, over the draft's vocabulary: means over `anchors`."""
    if passage.logits is None:
        raise TypeError("a divergence needs the target's logits")
    totals = torch.zeros(draft.gamma, dtype=torch.float64, device=passage.ids.device)
    lag = draft.reading.markov_lag
    for at, hidden in _blocks(draft, passage, anchors):
        # a drafted token follows the one before it; the slot of a bonus anchor, which drafts none, follows the anchor
        offsets = (torch.arange(draft.slots, device=at.device) - draft.first).clamp(min=0) - lag
        scores = decode.score(draft, hidden, passage.ids[(at[:, None] + offsets).clamp(min=0)])
        for token in range(draft.gamma):
            own = scores[:, draft.first + token].float().log_softmax(-1)
            wanted = passage.logits[at + token][:, draft.target_ids].float().log_softmax(-1)
            totals[token] += (wanted.exp() * (wanted - own)).sum(dtype=torch.float64)
    return tuple((totals / len(anchors)).tolist())


@torch.no_grad()
def replay(draft: Draft, passage: Passage, spare: int) -> Steps:
    """Greedy drafted decoding of the continuation but for its last `spare` tokens (a block), which only complete the last step.

    A step gives the drafted tokens that the continuation has, and one more: what the loop of `smoke` counts, without a target pass.
    """
    stop = len(passage.ids) - spare - 1
    counts: dict[int, int] = {}
    for at, hidden in _blocks(draft, passage, range(passage.output, stop)):
        tokens = decode.walk(draft, hidden, passage.ids[at], passage.ids[(at - 1).clamp(min=0)], decode.pick_best(draft)).tokens
        right = passage.ids[at[:, None] + 1 + torch.arange(draft.gamma, device=at.device)] == tokens
        counts.update(zip(at.tolist(), right.to(torch.int64).cumprod(1).sum(1).tolist(), strict=True))
    steps, position = 0, passage.output
    while position < stop:
        steps += 1
        position += counts[position] + 1
    return Steps(steps, position - passage.output)


def _blocks(draft: Draft, passage: Passage, anchors: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions [A] and states [A, slots, H] of the blocks at `anchors`; all rows share one context, each masked to its own past."""
    length, device = len(passage.ids), passage.ids.device
    cache = draft.cache(1, length)
    fused = torch.cat([passage.states[tap] for tap in draft.spec.target_layer_ids or ()], -1)
    draft.append(cache, fused[None], torch.arange(length, device=device)[None])
    for begin in range(0, len(anchors), BATCH_ANCHORS):
        at = torch.tensor(anchors[begin : begin + BATCH_ANCHORS], device=device)
        rows = [SlotCache(slot.keys.expand(len(at), -1, -1, -1), slot.values.expand(len(at), -1, -1, -1)) for slot in cache]
        yield at, draft.hidden(passage.ids[at], at, rows, int(at.max()))
