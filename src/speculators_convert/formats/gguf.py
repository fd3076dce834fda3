"""llama.cpp GGUF drafts (architecture "dflash", or "dspark" in older forks): metadata and tensor table.

Rules: llama.cpp `src/models/dflash.cpp` (`target_layers` are layer inputs, one over output ids; an absent
`sample_from_anchor` is true; `d2t` holds target ids themselves) and pull requests 22105, 25173, 26275. Legacy "dspark"
files keep output ids and other names (PrismML-Eng/llama.cpp pull request 127).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from speculators_convert.checkpoint import Checkpoint, Location
from speculators_convert.container.gguf import GgufFile, LongArray
from speculators_convert.formats.backbone import Tensors, read_confidence, read_dtype, read_layer_types, read_markov, read_max_position, read_rope, read_verifier, read_widths
from speculators_convert.formats.base import ConfigReader, Reading
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.native import MARKOV_TENSORS, anchor_of
from speculators_convert.formats.places import Places
from speculators_convert.formats.roles import resolve
from speculators_convert.model import JsonValue
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec, Settings, TensorRef, Verifier
from speculators_convert.target.vocabulary import read_kind, read_tables

_LEGACY = "dspark"
_KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "causal": "attention.causal",
    "block_size": "block_size",
    "target_layers": "target_layers",
    "sample_from_anchor": "sample_from_anchor",
    "enable_confidence_head": "has_confidence_head",
    "markov_rank": "markov_rank",
    "mrope_section": "rope.dimension_sections",
    "scaling_type": "rope.scaling.type",
    "scaling_factor": "rope.scaling.factor",
    "scaling_original": "rope.scaling.original_context_length",
}
"""Our key to the key below the architecture's prefix."""
_PLAIN = {
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
    "markov_w1.weight": MARKOV_TENSORS[0],
    "markov_w2.weight": MARKOV_TENSORS[1],
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
    "dspark.fc.weight": "fc.weight",
    "dspark.hidden_norm.weight": "hidden_norm.weight",
    "dspark.markov_head_a.weight": MARKOV_TENSORS[0],
    "dspark.markov_head_b.weight": MARKOV_TENSORS[1],
    "dspark.confidence_head.weight": "confidence_head.proj.weight",
    "dspark.confidence_head.bias": "confidence_head.proj.bias",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d{1,4})\.([a-z_]+)\.(weight|bias)")
_FLOATS = {"F32", "F16", "BF16", "F64", "I64", "I32"}


def gguf_role(name: str) -> str:
    """Role of a GGUF tensor name."""
    block = _BLOCK.fullmatch(name)
    if block and block[2] in _LAYER:
        return f"layers.{block[1]}.{_LAYER[block[2]]}.{block[3]}"
    return _PLAIN.get(name, name)


class Gguf:
    """A GGUF file with a DFlash architecture."""

    name = "gguf"
    title = "llama.cpp GGUF"
    order = 10

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """`general.architecture` is "dflash" or "dspark"."""
        found = _draft(checkpoint)
        if found is None:
            return ()
        path, file = found
        has_markov = any(gguf_role(tensor.name) in MARKOV_TENSORS for tensor in file.tensors)
        return (
            f'{path}: GGUF, general.architecture is "{file.metadata["general.architecture"]}"',
            "Markov tables among its tensors" if has_markov else "no Markov tables: a DFlash draft",
        )

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form of the first draft file."""
        found = _draft(checkpoint)
        if found is None:
            raise ValueError("read() needs a checkpoint that matches()")
        path, file = found
        alone = replace(checkpoint, tensors={tensor.name: Location(path, tensor) for tensor in file.tensors})
        return _read(path, file, alone, settings)


def _draft(checkpoint: Checkpoint) -> tuple[str, GgufFile] | None:
    return next(((path, file) for path, file in sorted(checkpoint.gguf.items()) if file.metadata.get("general.architecture") in ("dflash", _LEGACY)), None)


def _read(path: str, file: GgufFile, checkpoint: Checkpoint, settings: Settings) -> Reading:
    legacy = file.metadata["general.architecture"] == _LEGACY
    config, log = _config(path, file), EvidenceLog()
    places, (by_role, unknown) = Places((config,)), resolve(checkpoint, gguf_role)
    tensors = Tensors(by_role)
    dspark = any(role in by_role for role in MARKOV_TENSORS)
    log.pick("algorithm", ("dspark" if dspark else "dflash", f"{path}: Markov tables among the tensors, or not"))
    widths = read_widths(log, tensors, config, (None, ""))
    anchor = _anchor(log, config, settings, dspark=dspark)
    gamma = _gamma(log, config, settings, anchor)
    markov = read_markov(log, tensors, places, settings)
    layer_types = _layer_types(config, widths.num_hidden_layers)
    spec = DraftSpec(
        format="gguf",
        anchor=anchor,
        gamma=gamma,
        query_slots=None if gamma is None else gamma + (anchor is Anchor.BONUS),
        target_layer_ids=log.pick("target_layer_ids", (settings.target_layer_ids, "--set target_layer_ids"), *places.lists("target_layers", shift=0 if legacy else -1)),
        target_vocab_size=widths.target_vocab_size,
        draft_vocab_size=widths.draft_vocab_size or widths.target_vocab_size,
        d2t=_d2t(log, checkpoint, widths.target_vocab_size),
        hidden_size=widths.hidden_size,
        target_hidden_size=widths.hidden_size,
        intermediate_size=widths.intermediate_size,
        num_hidden_layers=widths.num_hidden_layers,
        num_attention_heads=widths.num_attention_heads,
        num_key_value_heads=widths.num_key_value_heads,
        head_dim=widths.head_dim,
        rms_norm_eps=config.number("rms_norm_eps"),
        hidden_act="silu",
        attention_bias=False,
        max_position_embeddings=read_max_position(log, config, settings),
        layer_types=layer_types,
        sliding_window=log.pick("sliding_window", (settings.sliding_window, "--set sliding_window"), *places.integers("sliding_window")),
        sliding_causal=_sliding_causal(log, places, settings),
        rope=read_rope(log, config, settings),
        markov=markov,
        confidence=read_confidence(log, tensors, places, markov.rank if markov else None, widths.hidden_size),
        mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), *places.integers("mask_token_id", minimum=0)),
        dtype=read_dtype(log, tensors, config),
        tie_word_embeddings=False,
        verifier=Verifier(name_or_path=read_verifier(log, (None, ""), settings)),
        quantization=_quantization(by_role),
        attention_sinks=any(name.endswith(".attn_sinks.weight") for name in unknown),
        tensors=by_role,
        unknown_tensors=unknown,
        evidence=tuple(log.items),
    )
    return Reading(spec, tuple(config.problems))


def _config(path: str, file: GgufFile) -> ConfigReader:
    """Metadata under our keys; evidence and problems show the file's own."""
    architecture = str(file.metadata["general.architecture"])
    prefixes = (f"{architecture}.", f"{architecture}.{architecture}.", "dflash.")
    table: dict[str, JsonValue] = {}
    names = {"mask_token_id": "tokenizer.ggml.mask_token_id", "vocab_size": "tokenizer.ggml.tokens"}
    for key, below in _KEYS.items():
        names[key] = next((prefix + below for prefix in prefixes if prefix + below in file.metadata), prefixes[0] + below)
        table[key] = _kept(file.metadata.get(names[key]))
    table["mask_token_id"] = _kept(file.metadata.get(names["mask_token_id"]))
    tokens = file.metadata.get(names["vocab_size"])
    table["vocab_size"] = tokens.length if isinstance(tokens, LongArray) else len(tokens) or None if isinstance(tokens, list) else None
    kv = table["num_key_value_heads"]
    if isinstance(kv, list) and kv and all(item == kv[0] for item in kv):
        table["num_key_value_heads"] = kv[0]
    scaling = {"rope_type": table.pop("scaling_type"), "factor": table.pop("scaling_factor"), "original_max_position_embeddings": table.pop("scaling_original")}
    if scaling["rope_type"] not in (None, "none"):
        table["rope_scaling"] = scaling
    return ConfigReader(table, file=path, names=names)


def _kept(value: JsonValue | LongArray) -> JsonValue:
    return f"{value.length} items" if isinstance(value, LongArray) else value


def _anchor(log: EvidenceLog, config: ConfigReader, settings: Settings, *, dspark: bool) -> Anchor | None:
    rule = (Anchor.SAMPLED, "llama.cpp reads an absent sample_from_anchor as true") if dspark else (Anchor.BONUS, "format rule: a DFlash block is the anchor and N drafts")
    stated = ((anchor_of(settings.sample_from_anchor), "--set sample_from_anchor"), (anchor_of(config.boolean("sample_from_anchor")), config.at("sample_from_anchor")))
    return log.pick("anchor", *stated) or log.pick("anchor", rule)


def _gamma(log: EvidenceLog, config: ConfigReader, settings: Settings, anchor: Anchor | None) -> int | None:
    """llama.cpp drafts `block_size` tokens with a sampled anchor and one less without."""
    block_size, less = config.integer("block_size", minimum=1), int(anchor is Anchor.BONUS)
    how = " minus one: the anchor's slot" if less else ""
    return log.pick("gamma", (settings.gamma, "--set gamma"), (block_size - less if block_size and block_size > less else None, config.at("block_size") + how))


def _d2t(log: EvidenceLog, checkpoint: Checkpoint, target_vocab_size: int | None) -> D2T:
    tables = read_tables(checkpoint)
    if tables.d2t is None:
        return D2T.NONE
    log.pick("d2t", (D2T.ABSOLUTE, "llama.cpp scatters draft logits to the rows that d2t names"))
    kind, why = read_kind(tables, target_vocab_size)
    log.note("d2t_values", kind, why)
    return D2T.ABSOLUTE


def _layer_types(config: ConfigReader, layers: int | None) -> tuple[AttentionKind, ...] | None:
    """A pattern with one flag per layer; no window means full attention everywhere."""
    pattern = config.table.get("sliding_window_pattern")
    if config.table.get("sliding_window") is None or pattern is None:
        return read_layer_types(ConfigReader({}), layers)
    if not isinstance(pattern, list) or not all(isinstance(item, (bool, int)) for item in pattern) or (layers is not None and len(pattern) != layers):
        config.reject("sliding_window_pattern", pattern, "one flag per layer")
        return None
    return tuple(AttentionKind.SLIDING if item else AttentionKind.FULL for item in pattern)


def _sliding_causal(log: EvidenceLog, places: Places, settings: Settings) -> bool:
    by_user = None if settings.sliding_window_non_causal is None else not settings.sliding_window_non_causal
    value = log.pick("sliding_causal", (by_user, "--set sliding_window_non_causal"), *places.booleans("causal"))
    return bool(value)


def _quantization(by_role: Mapping[str, TensorRef]) -> str | None:
    counts = Counter(ref.dtype for ref in by_role.values() if ref.dtype not in _FLOATS)
    return f"GGUF {counts.most_common(1)[0][0]}" if counts else None


FORMAT = Gguf()
