"""The facts that engine rules may name, from the normal form and the file's own keys."""

from __future__ import annotations

import re

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.engines.rules import Facts
from speculators_convert.model import JsonValue
from speculators_convert.spec import AttentionKind, DraftSpec, expected_shapes
from speculators_convert.target.pairing import Pairing

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PLAIN = {"BF16", "F16", "F32", "F64"}
_HEADS = ("markov_head.", "confidence_head.")
_QUANTIZED_PARTS = ("_scale", "_scale_inv", "_scale_2", "_packed", "_shape", "_zero_point", "_g_idx")
_OWNED_BY_TARGET = {"d2t", "t2d"}


def facts(spec: DraftSpec, checkpoint: Checkpoint, tp_degrees: tuple[int, ...] = (), pairing: Pairing | None = None) -> Facts:
    """All facts by name; None where the file does not tell."""
    return {**_identity(spec, checkpoint), **_geometry(spec, checkpoint, pairing), **_attention(spec), **_heads(spec, checkpoint, tp_degrees), **_tensors(spec, checkpoint)}


def target_name(spec: DraftSpec, pairing: Pairing | None = None) -> str:
    """The target that was looked at, else the Hub id that the draft names, else a placeholder."""
    if pairing is not None:
        return pairing.target.id.name
    name = spec.verifier.name_or_path or ""
    return name if _HUB_ID.fullmatch(name) else "TARGET"


def _identity(spec: DraftSpec, checkpoint: Checkpoint) -> dict[str, JsonValue]:
    config = checkpoint.config
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    return {
        "format": spec.format,
        "architecture": first,
        "model_type": _string(config.get("model_type")),
        "dtype_stated": any(isinstance(_anywhere(checkpoint, key), str) for key in ("dtype", "torch_dtype")),
        "verifier": _verifier_kind(spec.verifier.name_or_path),
        "quantized": any(ref.dtype not in _PLAIN for role, ref in spec.tensors.items() if role not in _OWNED_BY_TARGET),
    }


def _geometry(spec: DraftSpec, checkpoint: Checkpoint, pairing: Pairing | None) -> dict[str, JsonValue]:
    ids = spec.target_layer_ids
    depth = (pairing.num_hidden_layers if pairing else None) or spec.num_target_layers
    longest = pairing.max_position_embeddings if pairing else None
    return {
        "anchor": spec.anchor.value if spec.anchor else None,
        "anchor_key": isinstance(checkpoint.config.get("sample_from_anchor"), bool),
        "taps_listed": ids is not None,
        "taps_lowest": min(ids) if ids else None,
        "taps_ascend": None if ids is None else list(ids) == sorted(set(ids)),
        "taps_include_last": bool(ids and depth is not None and max(ids) >= depth - 1),
        "mask_stated": spec.mask_token_id is not None,
        "same_width": spec.target_hidden_size in (None, spec.hidden_size),
        "context_short": bool(longest is not None and spec.max_position_embeddings is not None and spec.max_position_embeddings < longest),
    }


def _attention(spec: DraftSpec) -> dict[str, JsonValue]:
    kinds = set(spec.layer_types or ())
    sliding = "none" if AttentionKind.SLIDING not in kinds else "mixed" if len(kinds) > 1 else "all"
    return {
        "sliding": sliding,
        "sliding_causal": spec.sliding_causal,
        "theta_stated": not any(item.fact == "rope_theta_default" for item in spec.evidence),
        "rope_extra": ", ".join(spec.rope.ignored),
        "rope_mrope": any(key.startswith("mrope") for key in spec.rope.ignored),
        "hidden_act": spec.hidden_act,
    }


def _heads(spec: DraftSpec, checkpoint: Checkpoint, tp_degrees: tuple[int, ...]) -> dict[str, JsonValue]:
    return {
        "reduced": spec.reduced_vocabulary,
        "d2t": spec.d2t.value,
        "markov": spec.markov.kind.value if spec.markov and spec.markov.kind and spec.markov.rank else "none",
        "markov_top_level": _markov_top_level(spec, checkpoint),
        "confidence": spec.confidence is not None,
        "tp_refused": ", ".join(str(tp) for tp in tp_degrees if not tp_fits(spec, tp)),
        "tp_possible": not tp_degrees or any(tp_fits(spec, tp) for tp in tp_degrees),
    }


def _tensors(spec: DraftSpec, checkpoint: Checkpoint) -> dict[str, JsonValue]:
    missing = [role for role in expected_shapes(spec) if role not in spec.tensors and role != "t2d"]
    renamed = sorted(ref.name for role, ref in spec.tensors.items() if ref.name != role)
    beyond = sorted(ref.name for role, ref in spec.tensors.items() if ref.name not in (role, f"model.{role}") or (role.startswith(_HEADS) and ref.name != role))
    unknown = [name for name in spec.unknown_tensors if not name.endswith(_QUANTIZED_PARTS) and not (spec.attention_sinks and "sink" in name)]
    return {
        "own_head": "lm_head.weight" in spec.tensors,
        "missing": _some(missing),
        "unknown": _some(unknown),
        "renamed": _some(renamed),
        "renamed_beyond_model": _some(beyond),
        "gguf_architecture": next((item.metadata.get("general.architecture") for item in checkpoint.gguf.values()), None),
        "container": "gguf" if checkpoint.gguf else "safetensors",
    }


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def tp_fits(spec: DraftSpec, tp: int) -> bool:
    """Whether the heads divide over `tp` ranks: heads % tp == 0, and kv % tp == 0 or tp % kv == 0 (SGLang 0.5.23 `models/dflash.py`)."""
    heads, kv = spec.num_attention_heads, spec.num_key_value_heads
    return (heads is None or heads % tp == 0) and (not kv or kv % tp == 0 or tp % kv == 0)


def _markov_top_level(spec: DraftSpec, checkpoint: Checkpoint) -> bool:
    """Whether rank and kind of the Markov head stand at the top of the config, where model classes read them; an absent kind is read as vanilla."""
    kind = spec.markov.kind.value if spec.markov and spec.markov.kind else "vanilla"
    return type(checkpoint.config.get("markov_rank")) is int and checkpoint.config.get("markov_head_type", "vanilla") == kind


def _verifier_kind(name: str | None) -> str:
    if name is None:
        return "none"
    return "hub" if _HUB_ID.fullmatch(name) else "path" if "/" in name or "\\" in name else "word"


def _anywhere(checkpoint: Checkpoint, key: str) -> JsonValue:
    nested = checkpoint.config.get("transformer_layer_config")
    return checkpoint.config.get(key) or (nested.get(key) if isinstance(nested, dict) else None)


def _string(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
