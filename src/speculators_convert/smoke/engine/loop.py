"""The loops: drafted decoding of a batch, and plain decoding of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.smoke.engine import decode
from speculators_convert.smoke.engine.decode import Accepted, Proposal, State
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.target import Step, Target

PREFILL_TOKENS = 1024
"""Longest piece of a prompt that one pass reads: a mask has one row per token of it."""
Watch = Callable[[int], None]


@dataclass(slots=True)
class Generation:
    """One prompt's output, cut at the limit and after an end token, and the accepted draft tokens of each verify step."""

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions of one round; other modes wrap them."""

    prepare: Callable[[], None] = lambda: None
    """Before a round: whatever the host must bring to the device."""
    first: Callable[[Tensor], Tensor] = decode.best
    propose: Callable[[Draft, State, int], Proposal] = decode.propose
    verify: Callable[[Target, State, Tensor, int], Step] = decode.verify
    accept: Callable[[Proposal, Tensor], Accepted] = decode.accept_greedy
    commit: Callable[[Draft, Target, State, Accepted, Tensor], None] = decode.commit


EAGER = Steps()


@dataclass(frozen=True, slots=True)
class Limits:
    """When a row stops."""

    max_new_tokens: int
    stop_ids: tuple[int, ...] = ()

    def cut(self, tokens: list[int]) -> list[int]:
        """`tokens` up to the limit and including the first end token."""
        tokens = tokens[: self.max_new_tokens]
        return next((tokens[: index + 1] for index, token in enumerate(tokens) if token in self.stop_ids), tokens)

    def done(self, tokens: list[int]) -> bool:
        """The row needs no more tokens; `tokens` may run over the limit."""
        return len(tokens) >= self.max_new_tokens or any(token in self.stop_ids for token in tokens)


def room(draft: Draft, limits: Limits) -> int:
    """Positions that a row needs after its prompt: a row may run over its limit by one block, and a row at rest is still verified."""
    return limits.max_new_tokens + 2 * (draft.gamma + 1)


def empty(draft: Draft, target: Target, rows: int, capacity: int) -> State:
    """A batch of `rows` rows of `capacity` positions, each at rest on one token."""
    device = target.device
    ids = torch.zeros(rows, capacity, dtype=torch.int64, device=device)
    length, active = torch.ones(rows, dtype=torch.int64, device=device), torch.zeros(rows, dtype=torch.bool, device=device)
    return State(ids, length, active, target.cache(rows, capacity), draft.cache(rows, capacity))


def prefill(draft: Draft, target: Target, state: State, prompts: Sequence[Sequence[int]], first: Callable[[Tensor], Tensor]) -> None:
    """The target reads the prompts; each row's next token becomes its first anchor. Rows beyond the prompts repeat the first one, at rest."""
    rows, device = state.ids.shape[0], target.device
    filled = [*prompts, *([prompts[0]] * (rows - len(prompts)))]
    longest = max(len(prompt) for prompt in filled)
    state.ids.copy_(torch.tensor([[*prompt, *([0] * (state.ids.shape[1] - len(prompt)))] for prompt in filled]))
    state.length.copy_(torch.tensor([len(prompt) for prompt in filled]))
    if not target.ragged:
        state.target_cache = target.cache(rows, state.ids.shape[1])
    ends, last = state.length - 1, None
    for begin in range(0, longest, PREFILL_TOKENS):
        end = min(begin + PREFILL_TOKENS, longest)
        positions = torch.arange(begin, end, device=device).expand(rows, end - begin)
        kept = sorted({len(prompt) - 1 - begin for prompt in filled if begin < len(prompt) <= end}) or [0]
        step = target.forward(state.ids[:, begin:end], positions, state.target_cache, end, torch.tensor(kept, device=device))
        draft.append(state.draft_cache, step.fused, positions)
        columns = torch.searchsorted(torch.tensor(kept, device=device), ends - begin).clamp(max=len(kept) - 1)
        picked = step.logits[torch.arange(rows, device=device), columns]
        last = picked if last is None else torch.where((ends >= begin)[:, None], picked, last)
    if last is None:
        raise SmokeError("the prompt is empty", where="prompt", measured="0 tokens", expected="1 or more")
    _demand_finite(last.max(-1).values.isfinite().all(), "target", "prefill")
    state.ids.scatter_(1, state.length[:, None], first(last)[:, None])
    state.length += 1


@torch.no_grad()
def generate(
    draft: Draft,
    target: Target,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    watch: Watch = lambda _: None,
    steps: Steps = EAGER,
    state: State | None = None,
) -> list[Generation]:
    """Drafted decoding of a batch, greedy unless `steps` say otherwise; `watch` is told the number of finished rows.

    `state` is a batch to run in (its rows and positions may be more than needed); without it one is made to measure.
    """
    if len(prompts) > 1 and not target.ragged:
        return [run for prompt in prompts for run in generate(draft, target, [prompt], limits, watch, steps, state)]
    if state is None:
        state = empty(draft, target, len(prompts), max(len(prompt) for prompt in prompts) + room(draft, limits))
    prefill(draft, target, state, prompts, steps.first)
    runs = [Generation() for _ in prompts]
    known_tokens = [[int(token)] for token in decode.anchors(state)[0][: len(prompts)]]
    base, spare = [len(prompt) for prompt in prompts], [False] * (state.ids.shape[0] - len(prompts))
    while not all(resting := [limits.done(tokens) for tokens in known_tokens]):
        watch(sum(resting))
        state.active.copy_(torch.tensor([not rest for rest in resting] + spare))
        extent = max(at + len(tokens) for at, tokens in zip(base, known_tokens, strict=True))
        steps.prepare()
        proposal = steps.propose(draft, state, extent - 1)
        step = steps.verify(target, state, proposal.tokens, extent + draft.gamma)
        accepted = steps.accept(proposal, step.logits)
        steps.commit(draft, target, state, accepted, step.fused)
        _demand_finite(proposal.finite, "draft", "block")
        _demand_finite(accepted.finite, "target", "verification")
        for row, (count, tokens) in enumerate(zip(accepted.counts.tolist()[: len(prompts)], accepted.tokens.tolist(), strict=False)):
            if not resting[row]:
                runs[row].accepted.append(count)
                known_tokens[row] += tokens[: count + 1]
    for run, tokens in zip(runs, known_tokens, strict=True):
        run.tokens = limits.cut(tokens)
    return runs


@torch.no_grad()
def generate_plain(target: Target, prompt: Sequence[int], limits: Limits, watch: Watch = lambda _: None) -> list[int]:
    """Greedy decoding of the target alone, with the model's own cache, masks and positions; `watch` is told the number of known tokens."""
    cache, tokens = target.plain_cache(), list[int]()
    logits = target.plain(torch.tensor([list(prompt)], device=target.device), cache)
    while True:
        top = logits[0, -1].max(-1)
        _demand_finite(top.values.isfinite(), "target", "plain decoding")
        tokens.append(int(top.indices))
        watch(len(tokens))
        if limits.done(tokens):
            return limits.cut(tokens)
        logits = target.plain(top.indices.view(1, 1), cache)


def _demand_finite(finite: Tensor, model: str, stage: str) -> None:
    if not bool(finite):
        raise SmokeError(
            "logits are not finite",
            where=f"{model}, {stage}",
            measured="NaN or infinity",
            expected="finite numbers",
            hint="look for broken weights; in bfloat16 try --dtype float32",
        )
