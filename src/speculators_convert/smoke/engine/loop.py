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

Watch = Callable[[int], None]


@dataclass(slots=True)
class Generation:
    """One prompt's output, cut at the limit and after an end token, and the accepted draft tokens of each verify step."""

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions of one round; other modes wrap them."""

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


def start(draft: Draft, target: Target, prompts: Sequence[Sequence[int]], room: int, first: Callable[[Tensor], Tensor]) -> State:
    """Prefill: the target reads each prompt; its next token becomes the first anchor. `room` is the number of positions after the longest prompt."""
    device, longest = target.device, max(len(prompt) for prompt in prompts)
    batch, capacity = len(prompts), longest + room
    ids = torch.zeros(batch, capacity, dtype=torch.int64, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
    length = torch.tensor([len(prompt) for prompt in prompts], device=device)
    active = torch.ones(batch, dtype=torch.bool, device=device)
    state = State(ids, length, active, target.cache(batch, capacity), draft.cache(batch, capacity))
    positions = torch.arange(longest, device=device).expand(batch, longest)
    step = target.forward(ids[:, :longest], positions, state.target_cache, longest)
    draft.append(state.draft_cache, step.fused, positions)
    last = step.logits[torch.arange(batch, device=device), length - 1]
    _demand_finite(last.max(-1).values.isfinite().all(), "target", "prefill")
    ids.scatter_(1, length[:, None], first(last)[:, None])
    state.length += 1
    return state


@torch.no_grad()
def generate(draft: Draft, target: Target, prompts: Sequence[Sequence[int]], limits: Limits, watch: Watch = lambda _: None, steps: Steps = EAGER) -> list[Generation]:
    """Drafted decoding of a batch, greedy unless `steps` say otherwise; `watch` is told the number of finished rows."""
    if len(prompts) > 1 and not target.ragged:
        return [run for prompt in prompts for run in generate(draft, target, [prompt], limits, watch, steps)]
    state = start(draft, target, prompts, limits.max_new_tokens + 2 * (draft.gamma + 1), steps.first)
    runs = [Generation() for _ in prompts]
    known_tokens = [[int(token)] for token in decode.anchors(state)[0]]
    base = [len(prompt) for prompt in prompts]
    while not all(resting := [limits.done(tokens) for tokens in known_tokens]):
        watch(sum(resting))
        state.active = torch.tensor([not rest for rest in resting], device=state.ids.device)
        extent = max(at + len(tokens) for at, tokens in zip(base, known_tokens, strict=True))
        proposal = steps.propose(draft, state, extent - 1)
        step = steps.verify(target, state, proposal.tokens, extent + draft.gamma)
        accepted = steps.accept(proposal, step.logits)
        steps.commit(draft, target, state, accepted, step.fused)
        _demand_finite(proposal.finite, "draft", "block")
        _demand_finite(accepted.finite, "target", "verification")
        for row, (count, tokens) in enumerate(zip(accepted.counts.tolist(), accepted.tokens.tolist(), strict=True)):
            if not resting[row]:
                runs[row].accepted.append(count)
                known_tokens[row] += tokens[: count + 1]
    for run, tokens in zip(runs, known_tokens, strict=True):
        run.tokens = limits.cut(tokens)
    return runs


@torch.no_grad()
def generate_plain(target: Target, prompt: Sequence[int], limits: Limits) -> list[int]:
    """Greedy decoding of the target alone, with the model's own cache, masks and positions."""
    cache, tokens = target.plain_cache(), list[int]()
    logits = target.plain(torch.tensor([list(prompt)], device=target.device), cache)
    while True:
        top = logits[0, -1].max(-1)
        _demand_finite(top.values.isfinite(), "target", "plain decoding")
        tokens.append(int(top.indices))
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
