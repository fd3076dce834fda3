"""Sampled drafting and lossless verification: accept with min(1, p/q), else draw from what the draft left of p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from speculators_convert.smoke.engine import decode
from speculators_convert.smoke.engine.decode import Accepted, Proposal, State
from speculators_convert.smoke.engine.loop import Steps
from speculators_convert.smoke.engine.model import Draft


class Uniforms(NamedTuple):
    """Numbers in [0, 1) of one round: for the draft's draws [B, gamma], its acceptance [B, gamma], the token after it [B]."""

    draft: Tensor
    accept: Tensor
    after: Tensor


@dataclass(slots=True)
class Sampler:
    """Draws of a batch: row r uses its own stream, so that a request's output does not depend on its neighbours."""

    temperature: float
    generators: list[torch.Generator]

    @classmethod
    def seeded(cls, temperature: float, seeds: Sequence[int]) -> Sampler:
        """One stream per row."""
        sampler = cls(temperature, [])
        sampler.restart(seeds)
        return sampler

    def restart(self, seeds: Sequence[int]) -> None:
        """New streams, for another batch."""
        self.generators[:] = [torch.Generator().manual_seed(seed) for seed in seeds]

    def draw(self, columns: int) -> Tensor:
        """Uniform numbers, float64 [B, columns], on the host."""
        return torch.stack([torch.rand(columns, generator=generator, dtype=torch.float64) for generator in self.generators])

    def steps(self, gamma: int, device: str = "cpu") -> Steps:
        """The functions of a sampled round. Its numbers lie in one tensor that `prepare` refills, so that a captured round sees new ones."""
        numbers = torch.zeros(len(self.generators), 2 * gamma + 1, dtype=torch.float64, device=device)
        uniforms = Uniforms(numbers[:, :gamma], numbers[:, gamma:-1], numbers[:, -1])

        def prepare() -> None:
            numbers.copy_(self.draw(2 * gamma + 1))

        def first(logits: Tensor) -> Tensor:
            return invert(probabilities(logits, self.temperature), self.draw(1)[:, 0].to(logits.device))

        def sampled(draft: Draft, state: State, extent: int) -> Proposal:
            return propose(draft, state, extent, self.temperature, uniforms.draft)

        def accepted(proposal: Proposal, logits: Tensor) -> Accepted:
            return accept(proposal, logits, self.temperature, uniforms)

        return Steps(prepare=prepare, first=first, propose=sampled, accept=accepted)


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Softmax [..., n] in float64."""
    return (logits.double() / temperature).softmax(-1)


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index [B] drawn from weights [B, n] (not normalised) by inverting their sum at `uniforms` [B]; never one of weight zero."""
    sums = weights.cumsum(-1)
    drawn = torch.searchsorted(sums, (uniforms * sums[:, -1])[:, None], right=True)[:, 0]
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).to(torch.int64).argmax(-1)
    return torch.minimum(drawn, last)


def propose(draft: Draft, state: State, extent: int, temperature: float, uniforms: Tensor) -> Proposal:
    """Draft tokens drawn with `uniforms` [B, gamma], with the distributions they came from over the target's vocabulary."""

    def pick(logits: Tensor, slot: int) -> tuple[Tensor, Tensor, Tensor]:
        whole = draft.vocabulary.gather(logits)
        weights = probabilities(whole, temperature)
        return whole.max(-1).values, invert(weights, uniforms[:, slot]), weights

    proposal = decode.chain(draft, state, extent, pick)
    return proposal._replace(weights=scatter(proposal.weights, draft.target_ids, draft.target_vocab)) if proposal.weights is not None else proposal


def scatter(weights: Tensor, target_ids: Tensor, vocabulary: int) -> Tensor:
    """Draft probabilities [..., draft_vocab] over the target's vocabulary [..., V]; tokens that no draft id maps to get exactly 0."""
    return weights.new_zeros(*weights.shape[:-1], vocabulary).index_add_(-1, target_ids, weights)


def accept(proposal: Proposal, logits: Tensor, temperature: float, uniforms: Uniforms) -> Accepted:
    """Accept token x while u q(x) < p(x); the next token comes from max(p - q, 0) where it stopped, from p after a full block."""
    tokens, q = proposal.tokens, proposal.weights
    if q is None:
        raise TypeError("a sampled verification needs the draft's probabilities")
    p = probabilities(logits, temperature)
    chosen = (p[:, :-1].gather(-1, tokens[..., None]), q.gather(-1, tokens[..., None]))
    kept = (uniforms.accept * chosen[1][..., 0] < chosen[0][..., 0]).to(torch.int64)
    counts = kept.cumprod(1).sum(1)
    rows = torch.arange(len(counts), device=counts.device)
    p_stop = p[rows, counts]
    left = (p_stop - torch.cat((q, torch.zeros_like(q[:, :1])), 1)[rows, counts]).clamp(min=0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, p_stop)
    after = invert(left, uniforms.after)
    slots = torch.arange(tokens.shape[1] + 1, device=tokens.device)
    padded = torch.cat((tokens, tokens[:, -1:]), 1)
    return Accepted(counts, torch.where(slots < counts[:, None], padded, after[:, None]), logits.max(-1).values.isfinite().all())
