"""Writes `fixtures/good/<format>-<variant>/`: one tiny draft per packaging, byte for byte the same on each run.

Tensor names, config keys and (scaled-down) values are those of the public packagings; weights are random. Each folder's
`expected.json` is written by hand and never touched. `--check` compares instead of writing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from speculators_convert.container.header import Tensor, encode

GOOD = Path(__file__).parents[1] / "fixtures" / "good"
H, HEADS, KV, DIM, INNER, LAYERS, VOCAB, DRAFT, RANK = 8, 2, 1, 4, 12, 2, 64, 24, 4
AUX = [2, 10, 20, 30, 37]
OUTPUT = [1, 9, 19, 29, 36]
Array = tuple[str, tuple[int, ...], bytes]
"""dtype, shape, bytes."""
Tensors = dict[str, Array]
Files = dict[str, bytes]

FORMATS: dict[str, Callable[[], Files]] = {}


def fixture(name: str) -> Callable[[Callable[[], Files]], Callable[[], Files]]:
    """Register the maker of one folder."""

    def register(function: Callable[[], Files]) -> Callable[[], Files]:
        FORMATS[name] = function
        return function

    return register


def weights(name: str, *shape: int, dtype: str = "BF16") -> Array:
    """Random weights that depend on the tensor's name and shape only."""
    seed = int.from_bytes(hashlib.sha256(f"{name}{shape}".encode()).digest()[:8], "little")
    values = np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype("<f4") * 0.1
    if dtype == "BF16":
        return dtype, shape, (values.view("<u4") >> 16).astype("<u2").tobytes()
    kind = {"F32": "<f4", "F16": "<f2"}.get(dtype)
    data = values.astype(kind) if kind else np.random.Generator(np.random.PCG64(seed)).integers(0, 120, shape).astype("u1")
    return dtype, shape, data.tobytes()


def ones(*shape: int, dtype: str = "BF16") -> Array:
    values = np.ones(shape, "<f4")
    return (dtype, shape, values.tobytes()) if dtype == "F32" else (dtype, shape, (values.view("<u4") >> 16).astype("<u2").tobytes())


def backbone(*, taps: int = 5, layers: int = LAYERS) -> Tensors:
    """fc, the two norms and the Qwen3-shaped layers under their plain names."""
    found: Tensors = {"fc.weight": weights("fc", H, taps * H), "hidden_norm.weight": ones(H), "norm.weight": ones(H)}
    for index in range(layers):
        at = f"layers.{index}."
        rows = {"q_proj": (HEADS * DIM, H), "k_proj": (KV * DIM, H), "v_proj": (KV * DIM, H), "o_proj": (H, HEADS * DIM)}
        found.update({f"{at}self_attn.{part}.weight": weights(at + part, *shape) for part, shape in rows.items()})
        found.update({f"{at}self_attn.{part}.weight": ones(DIM) for part in ("q_norm", "k_norm")})
        found.update({f"{at}mlp.{part}.weight": weights(at + part, *shape) for part, shape in {"gate_proj": (INNER, H), "up_proj": (INNER, H), "down_proj": (H, INNER)}.items()})
        found.update({f"{at}{part}.weight": ones(H) for part in ("input_layernorm", "post_attention_layernorm")})
    return found


def heads(*, kind: str = "vanilla", draft: int = VOCAB, rank: int = RANK, confidence: bool = True, bias: bool = True) -> Tensors:
    """Markov and confidence heads under their nested names."""
    found: Tensors = {"markov_head.markov_w1.weight": weights("w1", VOCAB, rank), "markov_head.markov_w2.weight": weights("w2", draft, rank)}
    if kind == "gated":
        found.update({"markov_head.gate_proj.weight": weights("gate", rank, H + rank), "markov_head.gate_proj.bias": weights("gate_bias", rank)})
    if kind == "rnn":
        found.update({"markov_head.joint_proj.weight": weights("joint", 3 * rank, 2 * rank + H), "markov_head.joint_proj.bias": weights("joint_bias", 3 * rank)})
    if confidence:
        found["confidence_head.proj.weight"] = weights("confidence", 1, H + rank)
    if confidence and bias:
        found["confidence_head.proj.bias"] = weights("confidence_bias", 1)
    return found


def vocabulary() -> Tensors:
    """Embeddings and head as copies of a target's."""
    return {"embed_tokens.weight": weights("embed", VOCAB, H), "lm_head.weight": weights("head", VOCAB, H)}


def kept_ids() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Target ids of the reduced vocabulary, ascending."""
    return np.sort(np.random.Generator(np.random.PCG64(7)).choice(VOCAB, DRAFT, replace=False)).astype("<i8")


def reduced() -> Tensors:
    """The reduced head with its two tables: offsets and membership."""
    ids = kept_ids()
    flags = np.zeros(VOCAB, "u1")
    flags[ids] = 1
    rows = np.frombuffer(weights("head", VOCAB, H)[2], "<u2").reshape(VOCAB, H)[ids]
    offsets = (ids - np.arange(DRAFT)).astype("<i8")
    return {"lm_head.weight": ("BF16", (DRAFT, H), rows.tobytes()), "d2t": ("I64", (DRAFT,), offsets.tobytes()), "t2d": ("BOOL", (VOCAB,), flags.tobytes())}


def renamed(tensors: Tensors, names: Mapping[str, str]) -> Tensors:
    """Tensors under other prefixes."""
    return {next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name): array for name, array in tensors.items()}


def safetensors(tensors: Tensors, metadata: Mapping[str, str]) -> bytes:
    """One safetensors file, tensors sorted by name."""
    items = sorted(tensors.items())
    listed = [Tensor(name, dtype, shape, 0, len(data)) for name, (dtype, shape, data) in items]
    return encode(listed, metadata) + b"".join(data for _, (_, _, data) in items)


def folder(config: Mapping[str, Any], tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Files:
    """config.json and model.safetensors."""
    document = json.dumps(config, indent=2, sort_keys=True) + "\n"
    return {"config.json": document.encode(), "model.safetensors": safetensors(tensors, {"format": "pt"} if metadata is None else metadata)}


def qwen3(**keys: Any) -> dict[str, Any]:
    """The Qwen3 backbone keys."""
    base = {
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": DIM,
        "hidden_act": "silu",
        "hidden_size": H,
        "intermediate_size": INNER,
        "max_position_embeddings": 128,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB,
        "dtype": "bfloat16",
    }
    return {**base, **keys}


def full_layers() -> list[str]:
    return ["full_attention"] * LAYERS


# DeepSpec ------------------------------------------------------------------------------------------------------------


def deepspec_config(**keys: Any) -> dict[str, Any]:
    """A copy of the target's config with the draft's keys beside it."""
    own = {
        "architectures": ["Qwen3DSparkModel"],
        "num_target_layers": 40,
        "block_size": 7,
        "layer_types": full_layers(),
        "mask_token_id": 3,
        "target_layer_ids": OUTPUT,
        "num_anchors": 512,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
    }
    return qwen3(**{**own, **keys})


@fixture("deepspec-vanilla")
def _() -> Files:
    return folder(deepspec_config(), {**backbone(), **vocabulary(), **heads()})


@fixture("deepspec-rnn")
def _() -> Files:
    return folder(deepspec_config(markov_head_type="rnn"), {**backbone(), **vocabulary(), **heads(kind="rnn")})


@fixture("deepspec-sglang-bonus")
def _() -> Files:
    """As SGLang 0.5.23 reads it: explicit layout, block_size is gamma, each key at the top and nested; backbone names with `model.`."""
    shared = {"block_size": 6, "sample_from_anchor": False, "target_layer_ids": OUTPUT, "mask_token_id": 3, "markov_rank": RANK, "markov_head_type": "gated"}
    config = deepspec_config(**shared, dflash_config=shared, dspark_config=shared)
    names = {"layers.": "model.layers.", "norm.": "model.norm.", "hidden_norm.": "model.hidden_norm.", "fc.": "model.fc."}
    return folder(config, {**renamed(backbone(), names), **heads(kind="gated")})


# NeMo ----------------------------------------------------------------------------------------------------------------


@fixture("nemo-glm")
def _() -> Files:
    return folder(deepspec_config(architectures=["Glm5_2DSparkModel"]), {**backbone(), **vocabulary(), **heads()})


# Speculators ---------------------------------------------------------------------------------------------------------


def speculators_config(*, tokens: int | None, version: str = "0.9.0", nested: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A Speculators config; `tokens` None leaves proposal_methods out."""
    layer = {key: value for key, value in qwen3(**(nested or {})).items() if key != "dtype"}
    methods = [{"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": tokens, "verifier_accept_k": 1}]
    verifier = {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "org/target"}
    own: dict[str, Any] = {
        "architectures": ["DSparkDraftModel"],
        "auto_map": {"": "config.DSparkSpeculatorConfig"},
        "speculators_model_type": "dspark",
        "speculators_version": version,
        "speculators_config": {"algorithm": "dspark", "default_proposal_method": "greedy", "proposal_methods": methods if tokens is not None else [], "verifier": verifier},
        "transformer_layer_config": layer,
        "draft_vocab_size": VOCAB,
        "block_size": 8,
        "target_hidden_size": None,
        "aux_hidden_state_layer_ids": AUX,
        "mask_token_id": 3,
        "sliding_window_non_causal": False,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "transformers_version": "5.19.0",
    }
    return {**own, **keys}


SLIDING = {"layer_types": ["sliding_attention"] * LAYERS, "sliding_window": 2048, "use_sliding_window": True, "max_window_layers": 28}


@fixture("speculators-0.9-anchor-reduced")
def _() -> Files:
    """The shape of RedHatAI/Qwen3.6-35B-A3B-speculator.dspark, a hand-set label included."""
    config = speculators_config(tokens=8, nested=SLIDING, sample_from_anchor=True, draft_vocab_size=DRAFT, architectures=["Qwen3DSparkModel"])
    return folder(config, {**backbone(), **reduced(), **heads(draft=DRAFT)})


@fixture("speculators-0.8-bonus-reduced")
def _() -> Files:
    config = speculators_config(tokens=7, version="0.8.1", nested=SLIDING, sample_from_anchor=False, draft_vocab_size=DRAFT)
    return folder(config, {**backbone(), **reduced(), **heads(draft=DRAFT)})


@fixture("speculators-0.7-anchor-full")
def _() -> Files:
    """0.7 saves both vocabulary tensors."""
    config = speculators_config(tokens=8, version="0.7.0.1", nested={"layer_types": full_layers()}, sample_from_anchor=True)
    return folder(config, {**backbone(), **vocabulary(), **heads()})


@fixture("speculators-early-fill-in")
def _() -> Files:
    """Before 2026-07-13, as makora-ai/gemma4-26b-a4b-dspark: no sample_from_anchor, one token less than block_size."""
    config = speculators_config(tokens=6, version="0.6.1.dev12", nested={"layer_types": full_layers()}, block_size=7, draft_vocab_size=DRAFT)
    return folder(config, {**backbone(), **reduced(), "embed_tokens.weight": weights("embed", VOCAB, H), **heads(draft=DRAFT)})


@fixture("speculators-early-tokens-equal-block")
def _() -> Files:
    """No sample_from_anchor, but as many tokens as slots."""
    return folder(speculators_config(tokens=8, version="0.7.0", nested={"layer_types": full_layers()}), {**backbone(), **heads()})


@fixture("speculators-early-version-only")
def _() -> Files:
    """Neither key nor tokens: only the version speaks."""
    return folder(speculators_config(tokens=None, version="0.6.0", nested={"layer_types": full_layers()}), {**backbone(), **heads()})


@fixture("speculators-dflash-0.6")
def _() -> Files:
    """A DFlash draft from before 2026-04-21: speculative_tokens counts slots (speculators PR 456)."""
    config = speculators_config(tokens=16, version="0.5.0", nested={"layer_types": full_layers()}, block_size=16)
    config |= {"speculators_model_type": "dflash", "architectures": ["DFlashDraftModel"]}
    for key in ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"):
        del config[key]
    return folder(config, {**backbone(), **vocabulary()})


# SpecForge -----------------------------------------------------------------------------------------------------------


def specforge_config(**table: Any) -> dict[str, Any]:
    """Draft facts nested in `dflash_config`, as RadixArk/Qwen3.8-27B-DSpark (YaRN)."""
    nested = {
        "projector_type": "dspark",
        "attention_mode": "gqa",
        "target_layer_ids": OUTPUT,
        "mask_token_id": 3,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_alpha": 1.0,
        "confidence_head_with_markov": True,
    }
    rope = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 32.0, "original_max_position_embeddings": 64}
    own = {
        "architectures": ["DSparkDraftModel"],
        "auto_map": {"AutoModel": "dspark.DSparkDraftModel"},
        "block_size": 7,
        "num_target_layers": 40,
        "layer_types": full_layers(),
        "rope_parameters": rope,
        "rope_theta": None,
    }
    return qwen3(**own, dflash_config={**nested, **table})


@fixture("specforge-current")
def _() -> Files:
    return folder(specforge_config(), {**backbone(), **heads()})


@fixture("specforge-legacy")
def _() -> Files:
    legacy = {"markov_head.": "logit_head.markov_head.", "confidence_head.": "logit_head.confidence_head."}
    return folder(specforge_config(markov_head_type="gated"), {**backbone(), **renamed(heads(kind="gated"), legacy)})


# TorchSpec -----------------------------------------------------------------------------------------------------------

TORCHSPEC_NAMES = {"fc.": "context_proj.", "hidden_norm.": "context_norm.", "norm.": "final_norm."}


def torchspec_config(**keys: Any) -> dict[str, Any]:
    own = {
        "model_type": "dflash",
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": 5,
        "target_num_hidden_layers": 40,
        "target_hidden_size": H,
        "target_layer_ids": OUTPUT,
        "mask_token_id": 3,
        "block_size": 16,
    }
    return qwen3(**{**own, **keys})


@fixture("torchspec-dflash")
def _() -> Files:
    return folder(torchspec_config(), {**renamed(backbone(), TORCHSPEC_NAMES), "embed_tokens.weight": weights("embed", VOCAB, H)}, {"torchspec_version": "0.1"})


@fixture("torchspec-dspark")
def _() -> Files:
    head = {"markov_rank": RANK, "markov_head_type": "vanilla", "enable_confidence_head": True, "confidence_head_with_markov": True}
    config = torchspec_config(architectures=["DSparkDraftModel"], block_size=7, **head)
    return folder(config, {**renamed(backbone(), TORCHSPEC_NAMES), **heads()}, {"torchspec_version": "0.1"})


# ModelOpt ------------------------------------------------------------------------------------------------------------


def modelopt(kind: str) -> Files:
    """A DFlash label, flat head names, `use_confidence_head`, no metadata."""
    table = {
        "mask_token_id": 3,
        "target_layer_ids": OUTPUT,
        "projector_type": "dspark",
        "shift_label": True,
        "markov_rank": RANK,
        "markov_head_type": kind,
        "use_confidence_head": True,
        "causal": False,
        "use_swa": False,
        "swa_window_size": None,
        "attention_sink_bias": False,
    }
    config = qwen3(architectures=["DFlashDraftModel"], block_size=16, num_target_layers=40, layer_types=full_layers(), dflash_config=table)
    flat = renamed(heads(kind=kind), {"markov_head.": "", "confidence_head.proj.": "confidence_proj."})
    return folder(config, {**backbone(), **flat}, {})


@fixture("modelopt-vanilla")
def _() -> Files:
    return modelopt("vanilla")


@fixture("modelopt-gated")
def _() -> Files:
    return modelopt("gated")


# Nemotron ------------------------------------------------------------------------------------------------------------


def nemotron_config(**keys: Any) -> dict[str, Any]:
    """Both spellings of the layer ids, the layout in three places, a null rope_parameters beside rope_theta."""
    table = {"attention_sink_bias": True, "causal": True, "mask_token_id": 5, "swa_window_size": 1024, "use_swa": True, "target_layer_ids": OUTPUT, "sample_from_anchor": False}
    own = {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 8,
        "layer_types": ["sliding_attention"] * LAYERS,
        "sliding_window": 1024,
        "use_sliding_window": True,
        "rope_parameters": None,
        "rope_theta": 10000,
        "attention_sink_bias": True,
        "dflash_query_causal": True,
        "dspark_bonus_anchor": True,
        "dspark_fixup_head_type": "markov",
        "dspark_markov_rank": RANK,
        "markov_rank": RANK,
        "eagle_aux_hidden_state_layer_ids": AUX,
        "target_layer_ids": OUTPUT,
        "has_embed_tokens": True,
        "has_lm_head": False,
        "sample_from_anchor": False,
        "dflash_config": table,
    }
    return qwen3(**own, **keys)


def sinks() -> Tensors:
    return {f"layers.{index}.self_attn.attention_sink_bias": weights(f"sink{index}", HEADS) for index in range(LAYERS)}


@fixture("nemotron-bf16")
def _() -> Files:
    return folder(nemotron_config(), {**backbone(), **sinks(), "embed_tokens.weight": weights("embed", VOCAB, H), **heads(confidence=False)})


@fixture("nemotron-nvfp4")
def _() -> Files:
    """Linear layers packed two values a byte, with block and tensor scales."""
    tensors: Tensors = {}
    for name, (dtype, shape, data) in backbone().items():
        if "proj" not in name:
            tensors[name] = dtype, shape, data
            continue
        tensors[name] = weights(name, shape[0], shape[1] // 2, dtype="U8")
        tensors[name + "_scale"] = weights(name + "s", shape[0], max(1, shape[1] // 16), dtype="F8_E4M3")
        tensors[name + "_scale_2"] = weights(name + "s2", 1, dtype="F32")
    config = nemotron_config(quantization_config={"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": None})
    return folder(config, {**tensors, **sinks(), "embed_tokens.weight": weights("embed", VOCAB, H), **heads(confidence=False)})


# DeepSeek-V4 bundled -------------------------------------------------------------------------------------------------


def bundled(*, names: tuple[str, str], ids: list[int]) -> Files:
    """A target of one layer with three draft stages; only the draft's own tensors matter here."""
    config = {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "hidden_size": H,
        "num_hidden_layers": 43,
        "num_nextn_predict_layers": 3,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        "sliding_window": 128,
        "dspark_block_size": 5,
        "dspark_markov_rank": RANK,
        "dspark_noise_token_id": 6,
        "dspark_target_layer_ids": ids,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    tensors: Tensors = {
        "embed.weight": weights("embed", VOCAB, H),
        "head.weight": weights("head", VOCAB, H),
        "norm.weight": ones(H),
        "layers.0.attn.wq_a.weight": weights("wq_a", 4, H),
    }
    for stage in range(3):
        tensors[f"mtp.{stage}.attn.wq_a.weight"] = weights(f"stage{stage}", 4, H, dtype="F8_E4M3")
        tensors[f"mtp.{stage}.attn.wq_a.scale"] = weights(f"scale{stage}", 1, 1, dtype="F32")
        tensors[f"mtp.{stage}.attn_norm.weight"] = ones(H)
    hc = weights("hc", 4, H, dtype="F32")
    tensors |= {"mtp.0.main_proj.weight": weights("main", H, 3 * H), "mtp.0.main_norm.weight": ones(H), "mtp.2.norm.weight": ones(H), "mtp.2.hc_head_fn": hc}
    tensors |= {f"mtp.2.markov_head.{name}.weight": weights(f"w{index}", VOCAB, RANK) for index, name in enumerate(names, start=1)}
    tensors["mtp.2.confidence_head.proj.weight"] = weights("confidence", 1, H + RANK)
    return folder(config, tensors)


@fixture("bundled-v4")
def _() -> Files:
    return bundled(names=("markov_w1", "markov_w2"), ids=[40, 41, 42])


@fixture("bundled-v4.1")
def _() -> Files:
    return bundled(names=("embed", "head"), ids=[37, 38, 39])


# z-lab DFlash and DeepSpec with rank 0 -------------------------------------------------------------------------------


@fixture("dflash-z-lab")
def _() -> Files:
    table = {"target_layer_ids": OUTPUT, "mask_token_id": 3}
    own = {"architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "block_size": 16, "num_target_layers": 40}
    return folder(qwen3(**own, layer_types=full_layers(), dflash_config=table), backbone())


@fixture("dflash-deepspec")
def _() -> Files:
    config = deepspec_config(markov_rank=0, enable_confidence_head=False, confidence_head_with_markov=False, query_zero_predicts_next=True)
    return folder(config, {**backbone(), **vocabulary()})


# GGUF ----------------------------------------------------------------------------------------------------------------

GGML = {"F32": 0, "F16": 1, "I64": 27, "BF16": 30}


def gguf_value(value: Any) -> tuple[int, bytes]:
    """ggml value type and bytes. Integers are unsigned 32-bit, floats 32-bit."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    items = [gguf_value(item) for item in value]
    return 9, struct.pack("<IQ", items[0][0], len(items)) + b"".join(data for _, data in items)


def text(value: str) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(metadata: Mapping[str, Any], tensors: Tensors) -> bytes:
    """One GGUF file, version 3, aligned to 32 bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, data = gguf_value(value)
        head += text(key) + struct.pack("<I", kind) + data
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        body += b"\0" * (-len(body) % 32)
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", extent) for extent in reversed(shape)) + struct.pack("<IQ", GGML[dtype], len(body))
        body += data
    return head + b"\0" * (-len(head) % 32) + body


GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GGUF_NAMES = {
    "hidden_norm.": "enc.output_norm.",
    "norm.": "output_norm.",
    "lm_head.": "output.",
    "embed_tokens.": "token_embd.",
    "markov_head.markov_w1.": "markov_w1.",
    "markov_head.markov_w2.": "markov_w2.",
    "confidence_head.proj.": "conf_proj.",
    **{f"layers.{index}.{ours}.": f"blk.{index}.{theirs}." for index in range(LAYERS) for ours, theirs in GGUF_LAYER.items()},
}


def gguf_metadata(architecture: str = "dflash", keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """As llama.cpp's converter writes them; `keys` go below the architecture's prefix."""
    base = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": H,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        "attention.key_length": DIM,
        "attention.value_length": DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1000000.0,
    }
    own = {f"{architecture}.{key}": value for key, value in {**base, **(keys or {})}.items()}
    tokenizer = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [f"t{index}" for index in range(VOCAB)], "tokenizer.ggml.mask_token_id": 3}
    return {"general.architecture": architecture, "general.file_type": 32, **own, **tokenizer}


def gguf_heads(tensors: Tensors) -> Tensors:
    return {name: array for name, array in renamed(tensors, GGUF_NAMES).items() if name != "t2d"}


@fixture("gguf-dspark-full")
def _() -> Files:
    metadata = gguf_metadata(keys={"block_size": 7, "target_layers": AUX, "sample_from_anchor": True, "attention.causal": False})
    return {"draft.gguf": gguf(metadata, gguf_heads({**backbone(), **heads()}))}


@fixture("gguf-dspark-reduced")
def _() -> Files:
    """Sliding layers, a bonus anchor, and target ids in `d2t`."""
    window = {"attention.sliding_window": 2048, "attention.sliding_window_pattern": [True] * LAYERS}
    metadata = gguf_metadata(keys={"block_size": 8, "target_layers": AUX, "sample_from_anchor": False, "attention.causal": True, **window})
    tensors = gguf_heads({**backbone(), **reduced(), **heads(draft=DRAFT)})
    tensors["d2t"] = "I64", (DRAFT,), kept_ids().tobytes()
    return {"draft.gguf": gguf(metadata, tensors)}


@fixture("gguf-dflash")
def _() -> Files:
    return {"draft.gguf": gguf(gguf_metadata(keys={"block_size": 16, "target_layers": AUX}), gguf_heads(backbone()))}


@fixture("gguf-legacy-dspark")
def _() -> Files:
    """The older fork's names: output ids, doubled prefixes, no vocabulary."""
    metadata = gguf_metadata("dspark", {"dspark.block_size": 4, "dspark.target_layers": OUTPUT})
    del metadata["tokenizer.ggml.tokens"]
    metadata["tokenizer.ggml.model"] = "none"
    parts = {"fc": "fc", "enc.output_norm": "hidden_norm", "markov_w1": "markov_head_a", "markov_w2": "markov_head_b", "conf_proj": "confidence_head"}
    old = {f"{new}.": f"dspark.{part}." for new, part in parts.items()}
    return {"draft.gguf": gguf(metadata, renamed(gguf_heads({**backbone(), **heads()}), old))}


def main() -> int:
    """Write the folders, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is on disk; exit 1 when it differs")
    check = parser.parse_args().check
    made = {f"{name}/{path}": data for name, make in sorted(FORMATS.items()) for path, data in make().items()}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(made.items()))
    made["SHA256SUMS"] = sums.encode()
    different = [path for path, data in made.items() if not (GOOD / path).is_file() or (GOOD / path).read_bytes() != data]
    for path in [] if check else different:
        (GOOD / path).parent.mkdir(parents=True, exist_ok=True)
        (GOOD / path).write_bytes(made[path])
    sys.stdout.write("".join(f"{'differs' if check else 'wrote'} {path}\n" for path in different) + f"{len(made)} files, {len(different)} {'differ' if check else 'written'}\n")
    return int(check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
