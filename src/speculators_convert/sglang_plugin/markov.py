"""Markov heads over two vocabularies: `markov_w1` over the target's tokens, `markov_w2` over the draft's, its rows split like the head's.

Mixed in under SGLang's own heads, whose arithmetic stays: VanillaMarkov, GatedMarkovHead and RNNHead.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.distributed.device_communicators.vocab_gather import make_vocab_gather
from sglang.srt.environ import envs
from sglang.srt.models.dspark import BaseDSparkMarkovHead, GatedMarkovHead, RNNHead, VanillaMarkov, VocabShard
from sglang.srt.runtime_context import get_parallel
from sglang.srt.utils import set_weight_attrs
from torch import Tensor, nn


class ReducedMarkov(VanillaMarkov):  # type: ignore[misc]
    """The vanilla head. `vocab_size` is the target's: step logits are kept at that width."""

    targets: Tensor
    """Target id of each draft id, [draft_vocab] int64."""

    def __init__(self, *, vocab_size: int, markov_rank: int) -> None:
        super(VanillaMarkov, self).__init__()
        self.vocab_size, self.markov_rank = int(vocab_size), int(markov_rank)
        self.markov_w1 = nn.Embedding(self.vocab_size, self.markov_rank)

    def reduce(self, head: Any) -> None:
        """Build this rank's rows of `markov_w2` beside those of the draft's `head`."""
        start, stop = int(head.shard_indices.org_vocab_start_index), int(head.shard_indices.org_vocab_end_index)
        self.register_buffer("targets", torch.arange(int(head.org_vocab_size)), persistent=False)
        self.markov_w2 = nn.Linear(self.markov_rank, stop - start, bias=False)

        def load_rows(parameter: nn.Parameter, loaded: Tensor) -> None:
            parameter.data.copy_(loaded[start:stop])

        set_weight_attrs(self.markov_w2.weight, {"weight_loader": load_rows})
        if int(head.tp_size) > 1:
            self.vocab_shard = VocabShard(start=start, gather=self._gather(head))

    def greedy_w2_weight(self) -> Tensor | None:
        """None when split: the fused kernel picks among its own columns only."""
        return None if self.vocab_shard is not None else super().greedy_w2_weight()

    def _gather(self, head: Any) -> Any:
        group = get_parallel().tp_group
        if group.world_size != int(head.tp_size):
            raise ValueError(f"the draft head is split over {int(head.tp_size)} ranks, its group has {group.world_size}")
        dtype = self.step_logits_dtype(head.weight.dtype)
        return make_vocab_gather(group, local_width=int(head.num_embeddings_per_partition), dtype=dtype, prefer_nvlink=envs.SGLANG_DSPARK_NVLINK_VOCAB_GATHER.get())


class ReducedGated(GatedMarkovHead, ReducedMarkov):  # type: ignore[misc]
    """The gated head."""


class ReducedRnn(RNNHead, ReducedMarkov):  # type: ignore[misc]
    """The recurrent head."""


def advance(head: Any, previous: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
    """State [B, rank] of a recurrent head after one slot, without the slot's bias; `previous` [B] target ids, `hidden` [B, H]."""
    joint = torch.cat([state, head.get_prev_embeddings(previous), hidden], dim=-1)
    gate, candidate, _ = head.joint_proj(joint).chunk(3, dim=-1)
    gate = torch.sigmoid(gate)
    return gate * state + (1.0 - gate) * torch.tanh(candidate)


def reduced_head(config: Any, head: Any) -> BaseDSparkMarkovHead:
    """The Markov head that the config names, reduced to the draft `head`'s vocabulary."""
    sizes = {"vocab_size": int(config.vocab_size), "markov_rank": int(config.markov_rank)}
    hidden = {"hidden_size": int(config.hidden_size)}
    kind = config.markov_head_type
    markov = ReducedMarkov(**sizes) if kind == "vanilla" else {"gated": ReducedGated, "rnn": ReducedRnn}[kind](**sizes, **hidden)
    markov.reduce(head)
    return markov
