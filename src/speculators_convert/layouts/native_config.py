"""The flat config that SGLang reads, from the normal form. Pure: also used where a Speculators config is read at run time.

Rules (SGLang 0.5.23): `dspark_components/dspark_config.py` reads the nested tables first and the top level after them,
`models/dspark.py` (`build_markov_head`, `build_confidence_head`) reads only the top level, so each key stands in all
three places; `block_size` is gamma in both anchor layouts; layer ids are output-of-layer ids; `Qwen3Config` drops
`sliding_window` unless `use_sliding_window` is true; without a `dtype` the weights would be loaded as float16; rope keys
that a draft does not use (`mrope_section`, `partial_rotary_factor`) would be obeyed, so they are left out.
"""

from __future__ import annotations

from speculators_convert.model import JsonValue
from speculators_convert.spec import Anchor, AttentionKind, DraftSpec, MarkovKind, Rope, known

ARCHITECTURE = "Qwen3DSparkModel"
NESTED_TABLES = ("dflash_config", "dspark_config")
EXTRA_TABLE = "spec_convert"
"""Table for what the flat form has no key for. Engines ignore it."""


def native_config(spec: DraftSpec, *, architecture: str = ARCHITECTURE, draft_vocab_size: int | None = None) -> dict[str, JsonValue]:
    """The flat config. `draft_vocab_size` is written when given; `RefusedError` names a fact that the spec leaves open."""
    shared = draft_keys(spec)
    config: dict[str, JsonValue] = {"architectures": [architecture], "model_type": "qwen3", **backbone_keys(spec), **shared}
    config.update({name: dict(shared) for name in NESTED_TABLES})
    config["dtype"] = known(spec.dtype, "dtype")
    config["tie_word_embeddings"] = spec.tie_word_embeddings
    if draft_vocab_size is not None:
        config["draft_vocab_size"] = draft_vocab_size
    if spec.target_hidden_size not in (None, spec.hidden_size):
        config["target_hidden_size"] = spec.target_hidden_size
    if not spec.sliding_causal:
        config["is_causal"] = False
    config[EXTRA_TABLE] = extra_keys(spec)
    return config


def draft_keys(spec: DraftSpec) -> dict[str, JsonValue]:
    """What makes the model a DSpark draft: block, taps, mask and heads."""
    keys: dict[str, JsonValue] = {
        "block_size": known(spec.gamma, "gamma"),
        "sample_from_anchor": known(spec.anchor, "sample_from_anchor") is Anchor.SAMPLED,
        "target_layer_ids": list(known(spec.target_layer_ids, "target_layer_ids")),
        "mask_token_id": known(spec.mask_token_id, "mask_token_id"),
        **head_keys(spec),
    }
    if spec.num_target_layers is not None:
        keys["num_target_layers"] = spec.num_target_layers
    return keys


def head_keys(spec: DraftSpec) -> dict[str, JsonValue]:
    """The keys of the Markov and confidence heads, spelled alike in the flat and the Speculators config."""
    rank = known(spec.markov.rank, "markov_rank") if spec.markov else 0
    kind = known(spec.markov.kind, "markov_head_type") if spec.markov else MarkovKind.VANILLA
    return {
        "markov_rank": rank,
        "markov_head_type": kind.value,
        "enable_confidence_head": spec.confidence is not None,
        "confidence_head_with_markov": spec.confidence is None or spec.confidence.with_markov,
    }


def backbone_keys(spec: DraftSpec) -> dict[str, JsonValue]:
    """The Qwen3 backbone. The same keys are nested in a Speculators config."""
    layer_types = known(spec.layer_types, "layer_types")
    return {
        "vocab_size": known(spec.target_vocab_size, "vocab_size"),
        "hidden_size": known(spec.hidden_size, "hidden_size"),
        "intermediate_size": known(spec.intermediate_size, "intermediate_size"),
        "num_hidden_layers": known(spec.num_hidden_layers, "num_hidden_layers"),
        "num_attention_heads": known(spec.num_attention_heads, "num_attention_heads"),
        "num_key_value_heads": known(spec.num_key_value_heads, "num_key_value_heads"),
        "head_dim": known(spec.head_dim, "head_dim"),
        "hidden_act": known(spec.hidden_act, "hidden_act"),
        "rms_norm_eps": known(spec.rms_norm_eps, "rms_norm_eps"),
        "attention_bias": spec.attention_bias,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "max_position_embeddings": known(spec.max_position_embeddings, "max_position_embeddings"),
        "max_window_layers": 28,
        "layer_types": [kind.value for kind in layer_types],
        "sliding_window": spec.sliding_window,
        "use_sliding_window": AttentionKind.SLIDING in layer_types,
        "rope_parameters": rope_parameters(spec.rope),
        "use_cache": True,
    }


def rope_parameters(rope: Rope) -> dict[str, JsonValue]:
    """Theta, type and, for a type other than default, its scaling keys."""
    scaling = rope.scaling if rope.type != "default" else {}
    return {**scaling, "rope_theta": known(rope.theta, "rope_theta"), "rope_type": rope.type}


def extra_keys(spec: DraftSpec) -> dict[str, JsonValue]:
    """What a reader of the flat form would otherwise have to guess or look up elsewhere."""
    return {
        "verifier": spec.verifier.name_or_path,
        "verifier_architectures": list(spec.verifier.architectures),
        "speculators_version": spec.producer_version,
        "gamma": spec.gamma,
        "query_slots": spec.query_slots,
    }
