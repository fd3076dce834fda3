"""Where drafted and plain output part: the target's own logits there, under plain decoding and under block verification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from speculators_convert.smoke.engine.loop import Generation
from speculators_convert.smoke.engine.target import Target


class Gaps(NamedTuple):
    """Logit of the plain token less that of the drafted one, in rounding steps of the run's dtype at those logits."""

    plain: float
    block: float


class Block(NamedTuple):
    """Where an output token was decided: the verify step's anchor (index into the output, -1 for the prefill) and the offset in its block."""

    anchor: int
    offset: int


def locate(accepted: Sequence[int], at: int) -> Block:
    """The block that decided output token `at`. Token 0 comes from the prefill; each step then gives accepted + 1 tokens."""
    anchor = 0
    for count in accepted:
        if at <= anchor + count + 1:
            return Block(anchor, at - anchor - 1) if at > 0 else Block(-1, 0)
        anchor += count + 1
    return Block(anchor, at - anchor - 1) if at > 0 else Block(-1, 0)


@torch.no_grad()
def measure(target: Target, prompt: Sequence[int], plain: Sequence[int], drafted: Generation, at: int, width: int) -> Gaps:
    """Gaps at output index `at`, where the two outputs first differ; `width` is the tokens of a verification, gamma + 1."""
    tokens = (plain[at] if at < len(plain) else None, drafted.tokens[at] if at < len(drafted.tokens) else None)
    if None in tokens:
        return Gaps(math.inf, math.inf)
    pair = torch.tensor(tokens, device=target.device)
    text = [*prompt, *plain[:at]]
    return Gaps(gap(_plain_logits(target, prompt, plain[:at]), pair), gap(_block_logits(target, text, len(prompt), locate(drafted.accepted, at), width), pair))


def _plain_logits(target: Target, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """Logits [target_vocab] after the prompt and `output`, one token at a time."""
    cache = target.plain_cache()
    logits = target.plain(torch.tensor([list(prompt)], device=target.device), cache)
    for token in output:
        logits = target.plain(torch.tensor([[token]], device=target.device), cache)
    return logits[0, -1]


def _block_logits(target: Target, text: Sequence[int], prompt: int, block: Block, width: int) -> Tensor:
    """The same logits from one pass over a block that begins at the verify step's anchor, on a freshly built history."""
    begin = prompt + block.anchor if block.anchor >= 0 else 0
    ids = torch.tensor([[*text, *([text[-1]] * width)]], device=target.device)
    end = begin + width if block.anchor >= 0 else len(text)
    positions, cache = torch.arange(ids.shape[1], device=target.device)[None], target.cache(1, ids.shape[1])
    if begin:
        target.forward(ids[:, :begin], positions[:, :begin], cache, begin)
    return target.forward(ids[:, begin:end], positions[:, begin:end], cache, end).logits[0, len(text) - 1 - begin]


def gap(logits: Tensor, pair: Tensor) -> float:
    """Difference of two logits over the spacing of the dtype's numbers at the larger of them."""
    left, right = logits[pair].tolist()
    size = max(abs(left), abs(right), torch.finfo(logits.dtype).tiny)
    step = torch.finfo(logits.dtype).eps * 2.0 ** math.floor(math.log2(size))
    return (left - right) / step if math.isfinite(left - right) else math.inf
