"""The normal form of a draft: what differs between producers, as explicit values in one stated convention.

Names are those of the `speculators` library. Sources of the rules: speculators 0.9.0 `models/dspark` and `models/dflash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from pydantic import Field

from speculators_convert.errors import RefusedError
from speculators_convert.model import JsonValue, Model

_T = TypeVar("_T")


class Anchor(StrEnum):
    """What slot 0 of a draft block is for. Its input is always the anchor, the last known token."""

    SAMPLED = "sampled"
    """Slot 0 predicts the token after the anchor (`sample_from_anchor` true): gamma slots."""
    BONUS = "bonus"
    """Slot 0 only carries the anchor (`sample_from_anchor` false): gamma + 1 slots, the first is not sampled."""


class D2T(StrEnum):
    """What `d2t` holds."""

    NONE = "none"
    OFFSET = "offset"
    """target id = draft id + d2t[draft id] (speculators)."""
    ABSOLUTE = "absolute"
    """target id = d2t[draft id]: the form inside a llama.cpp GGUF; in safetensors no known engine reads it, so it is a mistake there."""


class MarkovKind(StrEnum):
    """Markov head types of speculators."""

    VANILLA = "vanilla"
    GATED = "gated"
    RNN = "rnn"


class AttentionKind(StrEnum):
    """Attention of one draft layer."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"


class Evidence(Model):
    """One piece of evidence for a fact: what it says, where it stands, and whether the reading follows it."""

    fact: str
    says: str
    source: str = Field(description="File and JSON pointer, or tensor, or rule")
    decides: bool = False


class TensorRef(Model):
    """Where a tensor's bytes lie; `start` and `stop` are byte offsets in the file."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """Bytes of data."""
        return self.stop - self.start


class MarkovHead(Model):
    """Low-rank bias from the previous token: `markov_w1` [target_vocab, rank], `markov_w2` [draft_vocab, rank]."""

    kind: MarkovKind | None
    rank: int | None


class ConfidenceHead(Model):
    """Acceptance predictor: one linear unit over the hidden state and, with `with_markov`, the Markov embedding."""

    with_markov: bool
    bias: bool


class Rope(Model):
    """Rotary embedding of the draft layers. Half-rotation over the whole head unless `partial_factor` says otherwise."""

    theta: float | None
    type: str = "default"
    scaling: dict[str, JsonValue] = Field(default_factory=dict, description="Keys that rope_type needs (factor, ...); empty for default")
    ignored: tuple[str, ...] = Field(default=(), description="Keys in the file that a draft does not use (mrope_section, ...)")


class Bundled(Model):
    """A draft that lies inside its target's files; it is read and explained, not written on its own."""

    stages: int = Field(description="Number of distinct `mtp.N.` stages, each one draft layer")
    tensors: int
    tensor_bytes: int
    layer_ids_are_inputs: bool = Field(description="The file counts layer inputs (DeepSeek-V4.1), not outputs")


class Verifier(Model):
    """The target model that the draft was trained for."""

    name_or_path: str | None = None
    architectures: tuple[str, ...] = ()


class DraftSpec(Model):
    """A draft in normal form. A field is None when the file does not say it or says it in a way that cannot be read."""

    format: str
    anchor: Anchor | None
    gamma: int | None = Field(description="Draft tokens per block")
    query_slots: int | None = Field(description="Rows of one draft forward: gamma, or gamma + 1 with a bonus anchor")
    target_layer_ids: tuple[int, ...] | None = Field(description="Tapped layers; i means the OUTPUT of target layer i (HF hidden_states[i + 1]), -1 the embeddings")
    target_vocab_size: int | None
    draft_vocab_size: int | None
    d2t: D2T
    hidden_size: int | None
    target_hidden_size: int | None
    intermediate_size: int | None
    num_hidden_layers: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_dim: int | None
    rms_norm_eps: float | None
    hidden_act: str | None
    attention_bias: bool
    max_position_embeddings: int | None
    layer_types: tuple[AttentionKind, ...] | None
    sliding_window: int | None = Field(description="Context tokens that a sliding layer sees before the anchor, the same for each slot")
    sliding_causal: bool = Field(description="Sliding layers are causal inside the block; full layers never are")
    rope: Rope
    markov: MarkovHead | None
    confidence: ConfidenceHead | None
    mask_token_id: int | None
    dtype: str | None
    tie_word_embeddings: bool
    verifier: Verifier
    num_target_layers: int | None = Field(default=None, description="Depth of the target, when the file states it")
    speculative_tokens: int | None = Field(default=None, description="As stated in proposal_methods; equals gamma in a sound file")
    producer_version: str | None = None
    quantization: str | None = Field(default=None, description="Weight quantization that the file states (quant_algo or quant_method)")
    attention_sinks: bool = Field(default=False, description="The layers have learned sink biases, which only some engines apply")
    bundled: Bundled | None = None
    tensors: dict[str, TensorRef] = Field(default_factory=dict, description="By role: the tensor's name in the Speculators layout")
    unknown_tensors: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def slides(self) -> bool:
        """Some layer sees a window of the context only."""
        return AttentionKind.SLIDING in (self.layer_types or ())

    @property
    def reduced_vocabulary(self) -> bool:
        """The draft predicts over a subset of the target's tokens."""
        return self.draft_vocab_size is not None and self.draft_vocab_size != self.target_vocab_size


class Settings(Model):
    """Facts that the user states with `--set`; each wins over the file and is shown as evidence."""

    sample_from_anchor: bool | None = None
    gamma: int | None = Field(default=None, ge=1)
    mask_token_id: int | None = Field(default=None, ge=0)
    rope_theta: float | None = Field(default=None, gt=0)
    sliding_window: int | None = Field(default=None, ge=1)
    sliding_window_non_causal: bool | None = None
    markov_head_type: MarkovKind | None = None
    target_layer_ids: tuple[int, ...] | None = Field(default=None, min_length=1, description="In the output-of-layer convention")
    max_position_embeddings: int | None = Field(default=None, ge=1)
    verifier: str | None = None


def known(value: _T | None, name: str) -> _T:
    """`value`; `RefusedError` when the file left it open."""
    if value is None:
        raise RefusedError(f"{name} is not known", hint=f"run inspect for the reason; state it with --set {name}=... if the file cannot")
    return value


def layer_roles(index: int) -> dict[str, str]:
    """Short name to role of the tensors that each draft layer has (Qwen3 block)."""
    attention = {f"self_attn.{part}": f"layers.{index}.self_attn.{part}.weight" for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
    mlp = {f"mlp.{part}": f"layers.{index}.mlp.{part}.weight" for part in ("gate_proj", "up_proj", "down_proj")}
    norms = {part: f"layers.{index}.{part}.weight" for part in ("input_layernorm", "post_attention_layernorm")}
    return {**attention, **mlp, **norms}


MARKOV_ROLES: Mapping[MarkovKind, tuple[str, ...]] = {
    MarkovKind.VANILLA: (),
    MarkovKind.GATED: ("markov_head.gate_proj.weight", "markov_head.gate_proj.bias"),
    MarkovKind.RNN: ("markov_head.joint_proj.weight", "markov_head.joint_proj.bias"),
}
"""Roles that a head has beside `markov_w1` and `markov_w2`."""


def expected_shapes(spec: DraftSpec) -> dict[str, tuple[int | None, ...]]:
    """Role to shape for each tensor that the spec's own numbers ask for; None where a number is not known.

    `embed_tokens.weight` and, for a full vocabulary, `lm_head.weight` are not asked for: the target owns them.
    """
    h, heads, kv, dim, inner = spec.hidden_size, spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim, spec.intermediate_size
    vocab, draft_vocab = spec.target_vocab_size, spec.draft_vocab_size
    taps = len(spec.target_layer_ids) if spec.target_layer_ids is not None else None
    target_h = spec.target_hidden_size or h
    shapes: dict[str, tuple[int | None, ...]] = {"fc.weight": (h, _times(taps, target_h)), "hidden_norm.weight": (h,), "norm.weight": (h,)}
    for index in range(0 if spec.bundled else spec.num_hidden_layers or 0):
        rows = {"q_proj": (_times(heads, dim), h), "k_proj": (_times(kv, dim), h), "v_proj": (_times(kv, dim), h), "o_proj": (h, _times(heads, dim))}
        shapes.update({f"layers.{index}.self_attn.{name}.weight": shape for name, shape in rows.items()})
        shapes.update({f"layers.{index}.self_attn.{name}.weight": (dim,) for name in ("q_norm", "k_norm")})
        shapes.update({f"layers.{index}.mlp.{name}.weight": (inner, h) for name in ("gate_proj", "up_proj")})
        shapes[f"layers.{index}.mlp.down_proj.weight"] = (h, inner)
        shapes.update({f"layers.{index}.{name}.weight": (h,) for name in ("input_layernorm", "post_attention_layernorm")})
    if spec.reduced_vocabulary:
        shapes.update({"lm_head.weight": (draft_vocab, h), "d2t": (draft_vocab,), "t2d": (vocab,)})
    shapes.update(_head_shapes(spec))
    return shapes


def _head_shapes(spec: DraftSpec) -> dict[str, tuple[int | None, ...]]:
    h, shapes = spec.hidden_size, dict[str, tuple[int | None, ...]]()
    rank = spec.markov.rank if spec.markov else None
    if spec.markov:
        shapes["markov_head.markov_w1.weight"] = (spec.target_vocab_size, rank)
        shapes["markov_head.markov_w2.weight"] = (spec.draft_vocab_size, rank)
        if spec.markov.kind is MarkovKind.GATED:
            shapes.update({"markov_head.gate_proj.weight": (rank, _plus(h, rank)), "markov_head.gate_proj.bias": (rank,)})
        if spec.markov.kind is MarkovKind.RNN:
            shapes.update({"markov_head.joint_proj.weight": (_times(3, rank), _plus(_times(2, rank), h)), "markov_head.joint_proj.bias": (_times(3, rank),)})
    if spec.confidence:
        shapes["confidence_head.proj.weight"] = (1, _plus(h, rank) if spec.confidence.with_markov else h)
        if spec.confidence.bias:
            shapes["confidence_head.proj.bias"] = (1,)
    return shapes


def _times(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
