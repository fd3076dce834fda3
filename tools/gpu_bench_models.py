"""Models for `tools/gpu_bench.py`: the trained pair with its rewrites, and a synthetic pair at real widths with random weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAINED = ROOT / "fixtures" / "trained"
REDUCED, FULL, TARGET = "tiny-bonus-reduced-vanilla", "tiny-anchor-full-vanilla", "tiny-target"


@dataclass(frozen=True)
class Shape:
    """A target of few layers and a draft, as wide as those in use."""

    hidden: int = 2048
    intermediate: int = 6144
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 248320
    draft_vocab: int = 32000
    rank: int = 256
    gamma: int = 8
    draft_layers: int = 5
    target_layers: int = 4


SMALL = Shape(hidden=128, intermediate=256, heads=4, kv_heads=2, head_dim=32, vocab=4096, draft_vocab=512, rank=32, draft_layers=2)


def trained(folder: Path) -> None:
    """`target`, `native` (reduced, as trained), `dense` (the same over the whole vocabulary) and `full` (another draft, full vocabulary), the latter two for stock SGLang."""
    for name, source in (("target", TARGET), ("native", REDUCED), ("full-native", FULL)):
        shutil.copytree(TRAINED / source, folder / name)
    _rewrite(folder)


def synthetic(folder: Path, shape: Shape, device: str) -> None:
    """The same four, with random weights: the reduced draft's head is rows of the target's; both drafts have one backbone."""
    import torch  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    generator = torch.Generator(device=device).manual_seed(0)

    def random(*sizes: int, scale: float = 0.02) -> torch.Tensor:
        return (torch.randn(*sizes, generator=generator, device=device, dtype=torch.bfloat16) * scale).cpu()

    def ones(*sizes: int) -> torch.Tensor:
        return torch.ones(*sizes, dtype=torch.bfloat16)

    head = random(shape.vocab, shape.hidden)
    target = {"model.embed_tokens.weight": random(shape.vocab, shape.hidden), "lm_head.weight": head, "model.norm.weight": ones(shape.hidden)}
    for layer in range(shape.target_layers):
        target |= _layer(f"model.layers.{layer}.", shape, random, ones)
    _write(folder / "target", _target_config(shape), target, save_file)
    backbone = {"fc.weight": random(shape.hidden, 3 * shape.hidden), "hidden_norm.weight": ones(shape.hidden), "norm.weight": ones(shape.hidden)}
    for layer in range(shape.draft_layers):
        backbone |= _layer(f"layers.{layer}.", shape, random, ones)
    w1, w2 = random(shape.vocab, shape.rank), random(shape.vocab, shape.rank)
    kept = torch.arange(shape.draft_vocab) * (shape.vocab // shape.draft_vocab) + 3
    mask = torch.zeros(shape.vocab, dtype=torch.bool)
    mask[kept] = True
    markov = {"markov_head.markov_w1.weight": w1, "markov_head.markov_w2.weight": w2}
    reduced = {"lm_head.weight": head[kept].clone(), "d2t": kept - torch.arange(shape.draft_vocab), "t2d": mask}
    _write(folder / "native", _draft_config(shape, shape.draft_vocab), {**backbone, **reduced, **markov, "markov_head.markov_w2.weight": w2[kept].clone()}, save_file)
    _write(folder / "full-native", _draft_config(shape, shape.vocab), {**backbone, **markov}, save_file)
    _rewrite(folder)


def _rewrite(folder: Path) -> None:
    from speculators_convert import api  # noqa: PLC0415

    api.normalize(str(folder / "native"), folder / "dense", layout="sglang-dense", target=str(folder / "target"))
    api.normalize(str(folder / "full-native"), folder / "full", layout="sglang", target=str(folder / "target"))


def _layer(prefix: str, shape: Shape, random: Callable[..., object], ones: Callable[..., object]) -> dict[str, object]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        f"{prefix}input_layernorm.weight": ones(shape.hidden),
        f"{prefix}post_attention_layernorm.weight": ones(shape.hidden),
        f"{prefix}self_attn.q_norm.weight": ones(shape.head_dim),
        f"{prefix}self_attn.k_norm.weight": ones(shape.head_dim),
        f"{prefix}self_attn.q_proj.weight": random(queries, shape.hidden),
        f"{prefix}self_attn.k_proj.weight": random(keys, shape.hidden),
        f"{prefix}self_attn.v_proj.weight": random(keys, shape.hidden),
        f"{prefix}self_attn.o_proj.weight": random(shape.hidden, queries),
        f"{prefix}mlp.gate_proj.weight": random(shape.intermediate, shape.hidden),
        f"{prefix}mlp.up_proj.weight": random(shape.intermediate, shape.hidden),
        f"{prefix}mlp.down_proj.weight": random(shape.hidden, shape.intermediate),
    }


def _write(folder: Path, config: dict[str, object], tensors: dict[str, object], save: Callable[..., None]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _sizes(shape: Shape, layers: int) -> dict[str, object]:
    return {
        "hidden_size": shape.hidden, "intermediate_size": shape.intermediate, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "num_hidden_layers": layers, "layer_types": ["full_attention"] * layers, "vocab_size": shape.vocab, "max_position_embeddings": 4096,
    }  # fmt: skip


def _target_config(shape: Shape) -> dict[str, object]:
    return {**json.loads((TRAINED / TARGET / "config.json").read_text()), **_sizes(shape, shape.target_layers)}


def _draft_config(shape: Shape, draft_vocab: int) -> dict[str, object]:
    config = json.loads((TRAINED / FULL / "config.json").read_text())
    config["transformer_layer_config"] |= _sizes(shape, shape.draft_layers)
    config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = shape.gamma
    return {**config, "block_size": shape.gamma, "draft_vocab_size": draft_vocab, "markov_rank": shape.rank, "enable_confidence_head": False, "confidence_head_with_markov": False}
