"""The DFlash backbone: context keys from fused target states, a block of mask tokens, final states per slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from speculators_convert.errors import SmokeError
from speculators_convert.smoke.engine.attention import Rotary, SlotCache, attend, block_mask, rotate
from speculators_convert.smoke.engine.heads import Confidence, Markov, markov_head
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.vocabulary import Vocabulary, Whole, target_ids
from speculators_convert.spec import Anchor, AttentionKind, known

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu}
Masks = dict[AttentionKind, Tensor]
Angles = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a draft borrows from its target: embedding and head, [target_vocab, H] each."""

    embedding: Tensor
    head: Tensor


class Layer:
    """One draft layer (a Qwen3 block)."""

    def __init__(self, weights: Mapping[str, Tensor], index: int, reading: Reading) -> None:
        spec = reading.spec
        prefix = f"layers.{index}."
        self._w = {role.removeprefix(prefix): tensor for role, tensor in weights.items() if role.startswith(prefix)}
        self._eps = known(spec.rms_norm_eps, "rms_norm_eps")
        self._heads, self._kv_heads = known(spec.num_attention_heads, "num_attention_heads"), known(spec.num_key_value_heads, "num_key_value_heads")
        self._context_layernorm = reading.context_layernorm
        name = known(spec.hidden_act, "hidden_act")
        if name not in _ACTIVATIONS:
            raise SmokeError("the engine does not know this activation", where="hidden_act", measured=name, expected=", ".join(_ACTIVATIONS))
        self._act = _ACTIVATIONS[name]

    def context(self, states: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """Keys and values [B, T, kv_heads, D] of context states [B, T, H]."""
        return self._keys_values(self._norm("input_layernorm", states) if self._context_layernorm else states, angles)

    def block(self, x: Tensor, past: SlotCache, angles: Angles, mask: Tensor) -> Tensor:
        """States [B, Q, H] of a block after this layer; `past` holds the context, cut to the mask's width."""
        y = self._norm("input_layernorm", x)
        q = self._split(self._linear("self_attn.q_proj", y), self._heads)
        k, v = self._keys_values(y, angles)
        extent = mask.shape[-1] - x.shape[1]
        keys, values = torch.cat((past.keys[:, :extent], k), 1), torch.cat((past.values[:, :extent], v), 1)
        mixed = attend(rotate(self._norm("self_attn.q_norm", q), angles), keys, values, mask)
        x = x + self._linear("self_attn.o_proj", mixed)
        y = self._norm("post_attention_layernorm", x)
        return x + self._linear("mlp.down_proj", self._act(self._linear("mlp.gate_proj", y)) * self._linear("mlp.up_proj", y))

    def _keys_values(self, x: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        k = self._split(self._linear("self_attn.k_proj", x), self._kv_heads)
        v = self._split(self._linear("self_attn.v_proj", x), self._kv_heads)
        return rotate(self._norm("self_attn.k_norm", k), angles), v

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:-1], heads, -1)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight = self._w[f"{name}.weight"]
        return functional.rms_norm(x, weight.shape, weight, self._eps)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._w[f"{name}.weight"], self._w.get(f"{name}.bias"))


class Draft:
    """A draft, ready to run."""

    def __init__(self, reading: Reading, weights: Mapping[str, Tensor], shared: Shared, vocabulary: Vocabulary | None = None) -> None:
        spec, device = reading.spec, str(shared.embedding.device)
        self.reading, self.spec = reading, spec
        self.vocabulary = vocabulary or Whole()
        self.gamma, self.slots = known(spec.gamma, "gamma"), known(spec.query_slots, "query_slots")
        self.first = 0 if known(spec.anchor, "sample_from_anchor") is Anchor.SAMPLED else 1
        self._eps, self._mask_id = known(spec.rms_norm_eps, "rms_norm_eps"), known(spec.mask_token_id, "mask_token_id")
        self._kinds = known(spec.layer_types, "layer_types")
        self._fc, self._hidden_norm, self._norm = weights["fc.weight"], weights["hidden_norm.weight"], weights["norm.weight"]
        self._embedding = weights.get("embed_tokens.weight", shared.embedding)
        self._rotary = Rotary(spec.rope, known(spec.head_dim, "head_dim"), spec.max_position_embeddings, device)
        self.layers = [Layer(weights, index, reading) for index in range(known(spec.num_hidden_layers, "num_hidden_layers"))]
        head = _head(reading, weights, shared)
        self.target_ids = target_ids(spec, weights.get("d2t"), head.shape[0], device)
        self.target_vocab = known(spec.target_vocab_size, "vocab_size")
        self._head = self.vocabulary.slice(head)
        local = {**weights, "markov_head.markov_w2.weight": self.vocabulary.slice(weights["markov_head.markov_w2.weight"])} if spec.markov else weights
        self.markov: Markov = markov_head(spec, local)
        self.confidence = Confidence(spec.confidence, weights) if spec.confidence else None

    def cache(self, batch: int, capacity: int) -> list[SlotCache]:
        """An empty context for `batch` rows of `capacity` positions."""
        shape = (batch, capacity, known(self.spec.num_key_value_heads, "num_key_value_heads"), known(self.spec.head_dim, "head_dim"))
        return [SlotCache.empty(shape, self._fc) for _ in self.layers]

    def append(self, cache: list[SlotCache], fused: Tensor, positions: Tensor) -> None:
        """Add context: fused target states [B, T, taps * H_target] at `positions` [B, T]."""
        states = functional.linear(fused, self._fc)
        if self.reading.hidden_norm:
            states = functional.rms_norm(states, self._hidden_norm.shape, self._hidden_norm, self._eps)
        angles = self._rotary.angles(positions, states.dtype)
        for layer, slot in zip(self.layers, cache, strict=True):
            slot.write(*layer.context(states, angles), positions)

    def hidden(self, anchors: Tensor, positions: Tensor, cache: list[SlotCache], extent: int) -> Tensor:
        """Final-norm states [B, slots, H] of the block at anchors [B] in `positions` [B]; only cache slots below `extent` are read."""
        ids = torch.cat((anchors[:, None], anchors.new_full((anchors.shape[0], self.slots - 1), self._mask_id)), 1)
        x = functional.embedding(ids, self._embedding)
        where = positions[:, None] + torch.arange(self.slots, device=positions.device) + self.reading.block_shift
        angles = self._rotary.angles(where, x.dtype)
        masks = self._masks(positions, extent)
        for layer, slot, kind in zip(self.layers, cache, self._kinds, strict=True):
            x = layer.block(x, slot, angles, masks[kind])
        return functional.rms_norm(x, self._norm.shape, self._norm, self._eps)

    def base_logits(self, hidden: Tensor) -> Tensor:
        """This rank's columns [..., local] of the logits before the Markov bias."""
        return functional.linear(hidden, self._head)

    def _masks(self, positions: Tensor, extent: int) -> Masks:
        spec, masks = self.spec, Masks()
        for kind in set(self._kinds):
            sliding = kind is AttentionKind.SLIDING
            causal = self.reading.causal_block if self.reading.causal_block is not None else sliding and spec.sliding_causal
            window = known(spec.sliding_window, "sliding_window") if sliding else None
            masks[kind] = block_mask(positions, self.slots, extent, window=window, causal=causal)
        return masks


def _head(reading: Reading, weights: Mapping[str, Tensor], shared: Shared) -> Tensor:
    """Rows [draft_vocab, H]: the draft's own, or the target's when the vocabulary is full."""
    rows = known(reading.spec.draft_vocab_size, "draft_vocab_size")
    own = weights.get("lm_head.weight")
    if own is not None and not reading.target_head_rows:
        return own
    if reading.target_head_rows or not reading.spec.reduced_vocabulary:
        return shared.head[:rows]
    raise SmokeError("a reduced vocabulary needs its own head", where="lm_head.weight", measured="missing", expected=f"[{rows}, {reading.spec.hidden_size}]")
