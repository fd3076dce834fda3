"""Where the outputs of two servers part: is it rounding, or a defect? Judged with the target's own logits, from token ids alone.

A server tells how many drafted tokens of a request were accepted, not in which step. So the block that decided a token is
not known: its anchor stood 1 to gamma + 1 tokens before it. All of these blocks are computed, and the worst gap counts: a
split is a tie only if the target hardly prefers either token however its verification was cut. Per split that costs two
passes over the text, one token alone, and for each of the gamma + 1 anchors a block and a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import Equivalence, Split
from speculators_convert.smoke.compare import outcome
from speculators_convert.smoke.engine.loop import PREFILL_TOKENS
from speculators_convert.smoke.engine.splits import Gaps, gap
from speculators_convert.smoke.engine.target import AnyCache, Target
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS, judge, report

Tokens = Sequence[Sequence[int]]


def classify(
    target: Target, prompts: Tokens, plain: Tokens, drafted: Tokens, *, gamma: int, dtype: str, against: str = "plain", mode: str = "server", tp: int = 1, concurrency: int = 1
) -> Equivalence:
    """Each prompt's `drafted` output against its `plain` one (both asked with the same limits): exact, tie or defect at the first split.

    `target` is loaded in `dtype`, the servers' own; `SmokeError` when it is not, or when no tolerance is known for it.
    """
    _demand_dtype(target, dtype)
    found = list[Split]()
    for index, (prompt, left, right) in enumerate(zip(prompts, plain, drafted, strict=True)):
        at = outcome(index, right, (), left).first_difference
        if at is not None:
            pair = (left[at] if at < len(left) else None, right[at] if at < len(right) else None)
            found.append(judge(index, at, pair, measure(target, prompt, left[:at], pair, gamma), dtype))
    return report(mode, tp, len(prompts), found, dtype).model_copy(update={"against": against, "concurrency": concurrency})


@torch.no_grad()
def measure(target: Target, prompt: Sequence[int], output: Sequence[int], pair: tuple[int | None, int | None], gamma: int) -> Gaps:
    """Gap between the tokens of `pair` after `prompt` and `output`: one token at a time, and the worst over the blocks that may have decided it."""
    if None in pair:
        return Gaps(math.inf, math.inf)
    text, tokens = [*prompt, *output], torch.tensor(pair, device=target.device)
    plain = gap(_alone(target, text, len(output)), tokens)
    return Gaps(plain, max((gap(logits, tokens) for logits in _blocks(target, text, len(output), gamma)), key=abs))


def _alone(target: Target, text: Sequence[int], outputs: int) -> Tensor:
    """Logits [target_vocab] after `text`: the last output token alone on a history read at once, as a server decodes; a prompt in one pass."""
    cache, ids = target.plain_cache(), torch.tensor([list(text)], device=target.device)
    for begin in range(0, len(text) - 1 if outputs else 0, PREFILL_TOKENS):
        target.plain(ids[:, begin : min(begin + PREFILL_TOKENS, len(text) - 1)], cache)
    return target.plain(ids[:, -1:] if outputs else ids, cache)[0, -1]


def _blocks(target: Target, text: Sequence[int], outputs: int, gamma: int) -> Iterator[Tensor]:
    """The same logits from each block that may have decided them, the earliest anchor first; the first output token comes from the prompt's own pass."""
    width, last = gamma + 1, len(text) - 1
    ids = torch.tensor([[*text, *([text[-1]] * width)]], device=target.device)
    positions, cache = torch.arange(ids.shape[1], device=target.device)[None], target.cache(1, ids.shape[1])
    first = last - min(gamma, outputs - 1) if outputs else len(text)
    logits = _read(target, ids, positions, cache, first)
    if not outputs:
        yield logits
    for anchor in range(first, last + 1):
        block = slice(anchor, anchor + width)
        yield target.forward(ids[:, block], positions[:, block], cache, anchor + width).logits[0, last - anchor]
        target.settle(cache, ids[:, block], torch.zeros(1, dtype=torch.int64))
        target.forward(ids[:, anchor : anchor + 1], positions[:, anchor : anchor + 1], cache, anchor + 1)


def _read(target: Target, ids: Tensor, positions: Tensor, cache: AnyCache, stop: int) -> Tensor:
    """Read the first `stop` tokens into the cache; logits after the last of them."""
    logits = ids.new_empty(0)
    for begin in range(0, stop, PREFILL_TOKENS):
        end = min(begin + PREFILL_TOKENS, stop)
        logits = target.forward(ids[:, begin:end], positions[:, begin:end], cache, end, torch.tensor([end - begin - 1], device=target.device)).logits[0, -1]
    return logits


def _demand_dtype(target: Target, dtype: str) -> None:
    if dtype not in TOLERANCE_STEPS:
        raise SmokeError("no tolerance is known for this dtype", where="--dtype", measured=dtype, expected=" or ".join(TOLERANCE_STEPS), hint="serve in one of them")
    found = str(target.shared.head.dtype).removeprefix("torch.")
    if found != dtype:
        raise SmokeError("the target was loaded in another dtype than the servers'", where="dtype", measured=found, expected=dtype)
