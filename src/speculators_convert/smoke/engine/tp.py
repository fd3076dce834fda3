"""The draft's head over several ranks: rows of `lm_head` and `markov_w2` in equal slices, the last one padded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from speculators_convert.smoke.engine.decode import Accepted, Proposal
from speculators_convert.smoke.engine.loop import Steps
from speculators_convert.smoke.engine.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Sharded:
    """Rank `rank` of `world` holds rows `rank * local` up to `rank * local + local` of `rows`; what lies beyond `rows` is padding."""

    rank: int
    world: int
    rows: int

    @property
    def local(self) -> int:
        """Rows per rank."""
        return -(-self.rows // self.world)

    def slice(self, rows: Tensor) -> Tensor:
        """This rank's rows [local, n] of a [draft_vocab, n] weight; padding rows are zero."""
        part = rows[self.rank * self.local : (self.rank + 1) * self.local]
        return functional.pad(part, (0, 0, 0, self.local - part.shape[0])).contiguous()

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Largest logit and its draft id [B] over all ranks, lowest id first among equals, from [B, local]."""
        top = self._without_padding(logits).max(-1)
        values, ids = self._all(top.values), self._all(top.indices + self.rank * self.local)
        owner = values.max(0).indices[None]  # the first of equal values: ranks are in the order of their ids
        return values.gather(0, owner)[0], ids.gather(0, owner)[0]

    def gather(self, logits: Tensor) -> Tensor:
        """All columns [B, draft_vocab], without padding, from [B, local]."""
        return self._all(logits.contiguous()).movedim(0, -2).flatten(-2)[..., : self.rows]

    def agree(self, value: Tensor) -> Tensor:
        """Rank 0's value on each rank."""
        value = value.contiguous()
        dist.broadcast(value, 0)
        return value

    def _without_padding(self, logits: Tensor) -> Tensor:
        real = min(max(self.rows - self.rank * self.local, 0), self.local)
        return logits if real == self.local else logits.masked_fill(torch.arange(self.local, device=logits.device) >= real, -torch.inf)

    def _all(self, value: Tensor) -> Tensor:
        """[world, ...]."""
        parts = value.new_empty(self.world, *value.shape)
        dist.all_gather_into_tensor(parts.flatten(0, 1), value.contiguous())
        return parts


def in_step(steps: Steps, vocabulary: Vocabulary) -> Steps:
    """`steps` in which each rank goes on with rank 0's tokens: a target may round otherwise on another device."""
    if not isinstance(vocabulary, Sharded):
        return steps

    def accept(proposal: Proposal, logits: Tensor) -> Accepted:
        own = steps.accept(proposal, logits)
        return own._replace(counts=vocabulary.agree(own.counts), tokens=vocabulary.agree(own.tokens))

    return replace(steps, first=lambda logits: vocabulary.agree(steps.first(logits)), accept=accept)
