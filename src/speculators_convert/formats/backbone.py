"""Reads the Qwen3-shaped backbone: numbers from tensors first, from the config second, each kept as evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import ConfigReader
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.places import Places
from speculators_convert.formats.roles import layer_count
from speculators_convert.spec import AttentionKind, ConfidenceHead, MarkovHead, MarkovKind, Rope, Settings, TensorRef

_ROPE_SCALING_KEYS = {
    "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "short_factor", "long_factor",
    "low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim", "truncate",
}  # fmt: skip
_ROPE_IGNORED_KEYS = ("mrope_section", "mrope_interleaved", "partial_rotary_factor")
DEFAULT_THETA = 10_000.0
MAX_LAYERS = 4096
"""More layers than any draft has; each costs memory when its tensors are listed."""
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "U8": "uint8", "I8": "int8"}

_FLOATS = ("BF16", "F16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class Tensors:
    """Role to tensor with shape lookups that answer None for what is not there."""

    by_role: dict[str, TensorRef]

    def size(self, role: str, axis: int, dimensions: int = 2) -> int | None:
        """Extent of one axis, when the tensor exists and has that many dimensions."""
        ref = self.by_role.get(role)
        return ref.shape[axis] if ref is not None and len(ref.shape) == dimensions else None

    def where(self, role: str) -> str:
        """File and name of a tensor, for evidence."""
        ref = self.by_role.get(role)
        return f"{ref.file}:{ref.name}" if ref else role


@dataclass(frozen=True, slots=True)
class Widths:
    """Sizes of the backbone and the two vocabularies."""

    hidden_size: int | None
    intermediate_size: int | None
    num_hidden_layers: int | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    head_dim: int | None
    target_vocab_size: int | None
    draft_vocab_size: int | None


def read_widths(log: EvidenceLog, tensors: Tensors, backbone: ConfigReader, stated_draft_vocab: tuple[int | None, str]) -> Widths:
    """Sizes; a tensor's shape outranks the config."""
    hidden = log.pick("hidden_size", (tensors.size("norm.weight", 0, 1), tensors.where("norm.weight")), _config(backbone, "hidden_size"))
    heads_stated = backbone.integer("num_attention_heads", minimum=1)
    dim_default = hidden // heads_stated if hidden and heads_stated else None
    dim = log.pick("head_dim", (tensors.size("layers.0.self_attn.q_norm.weight", 0, 1), tensors.where("layers.0.self_attn.q_norm.weight")), _config(backbone, "head_dim"))
    dim = dim or dim_default
    return Widths(
        hidden_size=hidden,
        intermediate_size=log.pick(
            "intermediate_size", (tensors.size("layers.0.mlp.gate_proj.weight", 0), tensors.where("layers.0.mlp.gate_proj.weight")), _config(backbone, "intermediate_size")
        ),
        num_hidden_layers=log.pick(
            "num_hidden_layers",
            (layer_count(tensors.by_role), "layers.* tensors"),
            (backbone.integer("num_hidden_layers", minimum=1, maximum=MAX_LAYERS), backbone.at("num_hidden_layers")),
        ),
        num_attention_heads=log.pick("num_attention_heads", _heads(tensors, "q_proj", dim), (heads_stated, backbone.at("num_attention_heads"))),
        num_key_value_heads=log.pick("num_key_value_heads", _heads(tensors, "k_proj", dim), _config(backbone, "num_key_value_heads")),
        head_dim=dim,
        target_vocab_size=log.pick(
            "vocab_size",
            (tensors.size("markov_head.markov_w1.weight", 0), tensors.where("markov_head.markov_w1.weight")),
            (tensors.size("t2d", 0, 1), tensors.where("t2d")),
            (tensors.size("embed_tokens.weight", 0), tensors.where("embed_tokens.weight")),
            _config(backbone, "vocab_size"),
        ),
        draft_vocab_size=log.pick(
            "draft_vocab_size",
            (tensors.size("markov_head.markov_w2.weight", 0), tensors.where("markov_head.markov_w2.weight")),
            (tensors.size("d2t", 0, 1), tensors.where("d2t")),
            (tensors.size("lm_head.weight", 0), tensors.where("lm_head.weight")),
            stated_draft_vocab,
        ),
    )


def read_markov(log: EvidenceLog, tensors: Tensors, places: Places, settings: Settings) -> MarkovHead | None:
    """Kind and rank of the Markov head; None when neither tensors nor config know of one."""
    w1, w2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
    present = w1 in tensors.by_role or w2 in tensors.by_role
    rank = log.pick(
        "markov_rank", (tensors.size(w1, 1), tensors.where(w1)), (tensors.size(w2, 1), tensors.where(w2)), *places.integers("markov_rank", "dspark_markov_rank", minimum=0)
    )
    labels = [(MarkovKind(value) if value else None, source) for value, source in places.choices("markov_head_type", tuple(MarkovKind))]
    if not present and not rank:
        return None
    kind = log.pick("markov_head_type", (settings.markov_head_type, "--set markov_head_type"), (_kind_of(tensors) if present else None, "markov_head.* tensors"), *labels)
    return MarkovHead(kind=kind, rank=rank)


def read_confidence(log: EvidenceLog, tensors: Tensors, places: Places, rank: int | None, hidden: int | None) -> ConfidenceHead | None:
    """The confidence head; its input width says whether it sees the Markov embedding."""
    role = "confidence_head.proj.weight"
    width, present = tensors.size(role, 1), role in tensors.by_role
    log.pick("enable_confidence_head", (present if tensors.by_role else None, "confidence_head.* tensors"), *places.booleans("enable_confidence_head", "use_confidence_head"))
    stated = places.booleans("confidence_head_with_markov")
    if not present:
        return None
    fits = None if width is None or hidden is None else True if rank and width == hidden + rank else False if width == hidden else None
    with_markov = log.pick("confidence_head_with_markov", (fits, tensors.where(role)), *stated)
    return ConfidenceHead(with_markov=bool(with_markov), bias="confidence_head.proj.bias" in tensors.by_role)


def read_quantization(checkpoint: Checkpoint, config: ConfigReader) -> str | None:
    """Name of the weight quantization, from `quantization_config` or the two files that exporters write beside it."""
    stated = [_quantization(config.sub("quantization_config"))]
    for name in ("hf_quant_config.json", "quantization_config.json"):
        document = checkpoint.documents.get(name)
        reader = ConfigReader(document if isinstance(document, dict) else {}, file=name, problems=config.problems)
        stated += [_quantization(reader.sub("quantization")), _quantization(reader)]
    return next((name for name in stated if name), None)


def _quantization(reader: ConfigReader) -> str | None:
    return reader.string("quant_algo") or reader.string("quant_method")


def read_rope(log: EvidenceLog, backbone: ConfigReader, settings: Settings) -> Rope:
    """Rotary embedding from `rope_parameters`, or from the older `rope_theta` and `rope_scaling`. Absent theta is 10000 in every engine."""
    parameters, scaling = backbone.sub("rope_parameters"), backbone.sub("rope_scaling")
    tables = [parameters, *(parameters.sub(kind.value) for kind in AttentionKind if kind.value in parameters.table)]
    theta = log.pick(
        "rope_theta",
        (settings.rope_theta, "--set rope_theta"),
        *((table.number("rope_theta"), table.at("rope_theta")) for table in tables),
        (backbone.number("rope_theta"), backbone.at("rope_theta")),
        (scaling.number("rope_theta"), scaling.at("rope_theta")),
    )
    if theta is None:
        theta = log.pick("rope_theta_default", (DEFAULT_THETA, "no theta in the file: 10000 in every engine"))
    if backbone.boolean("rope_is_neox_style") is False:
        backbone.reject("rope_is_neox_style", False, "true: interleaved rotary pairs cannot be expressed")
    kind = _first(table.string(key) for table in (*tables, scaling) for key in ("rope_type", "type")) or "default"
    merged = {key: value for table in (scaling, *reversed(tables)) for key, value in table.table.items()}
    ignored = [key for key in _ROPE_IGNORED_KEYS if key in merged or backbone.table.get(key) is not None]
    return Rope(theta=theta, type=kind, scaling={key: value for key, value in sorted(merged.items()) if key in _ROPE_SCALING_KEYS and value is not None}, ignored=tuple(ignored))


def read_layer_types(backbone: ConfigReader, layers: int | None) -> tuple[AttentionKind, ...] | None:
    """Attention of each layer. Without `layer_types`, Qwen3Config's rule: sliding from `max_window_layers` on when `use_sliding_window` is true, else full."""
    names = backbone.strings("layer_types")
    if names:
        known = tuple(kind for name in names for kind in AttentionKind if kind.value == name)
        return known if len(known) == len(names) else None
    if layers is None or layers > MAX_LAYERS:
        return None
    if not backbone.boolean("use_sliding_window") or backbone.table.get("sliding_window") is None:
        return (AttentionKind.FULL,) * layers
    first = backbone.integer("max_window_layers", minimum=0)
    first = 28 if first is None else first
    return tuple(AttentionKind.SLIDING if index >= first else AttentionKind.FULL for index in range(layers))


def read_max_position(log: EvidenceLog, backbone: ConfigReader, settings: Settings) -> int | None:
    """The longest position, as stated by the user or the file."""
    return log.pick("max_position_embeddings", (settings.max_position_embeddings, "--set max_position_embeddings"), _config(backbone, "max_position_embeddings"))


def read_verifier(log: EvidenceLog, stated: tuple[str | None, str], settings: Settings) -> str | None:
    """Name of the target, as stated by the user or the file."""
    return log.pick("verifier", (settings.verifier, "--set verifier"), stated)


def read_dtype(log: EvidenceLog, tensors: Tensors, *readers: ConfigReader) -> str | None:
    """Weight dtype: that of `fc.weight` (of `norm.weight` when `fc` is quantized), then `dtype`, then `torch_dtype`."""
    role = next((name for name in ("fc.weight", "norm.weight") if name in tensors.by_role and tensors.by_role[name].dtype in _FLOATS), "fc.weight")
    ref = tensors.by_role.get(role) or next(iter(tensors.by_role.values()), None)
    stored = _DTYPES.get(ref.dtype, ref.dtype) if ref else None
    stated = [(reader.string(key), reader.at(key)) for reader in readers for key in ("dtype", "torch_dtype")]
    cleaned = [((value or "").removeprefix("torch.") or None, source) for value, source in stated]
    return log.pick("dtype", (stored, tensors.where(role)), *cleaned)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _config(reader: ConfigReader, key: str) -> tuple[int | None, str]:
    return reader.integer(key, minimum=1), reader.at(key)


def _heads(tensors: Tensors, name: str, dim: int | None) -> tuple[int | None, str]:
    role = f"layers.0.self_attn.{name}.weight"
    rows = tensors.size(role, 0)
    return (rows // dim if rows and dim and rows % dim == 0 else None), tensors.where(role)


def _kind_of(tensors: Tensors) -> MarkovKind:
    if "markov_head.joint_proj.weight" in tensors.by_role:
        return MarkovKind.RNN
    return MarkovKind.GATED if "markov_head.gate_proj.weight" in tensors.by_role else MarkovKind.VANILLA
