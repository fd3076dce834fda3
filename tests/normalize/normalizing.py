"""What the normalize tests share: the fixture drafts, synthetic drafts of any shape, and one call that rewrites."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speculators_convert import layouts
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.container.header import Tensor, encode, tensor_size_bytes
from speculators_convert.formats import detect
from speculators_convert.layouts import Options
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.receipt import Receipt
from speculators_convert.sources import Source, open_source
from speculators_convert.spec import DraftSpec, Settings
from speculators_convert.target.pairing import collect_pairing
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.write.execution import CHUNK_BYTES, execute
from speculators_convert.write.prepare import gather

FIXTURES = Path(__file__).parents[2] / "fixtures"
DRAFTS = sorted(
    path.parent.relative_to(FIXTURES).as_posix()
    for pattern in ("library/*/*/config.json", "trained/*/config.json")
    for path in FIXTURES.glob(pattern)
    if "target" not in path.parent.name
)


@dataclass(frozen=True)
class Read:
    source: Source
    checkpoint: Checkpoint
    spec: DraftSpec


@dataclass(frozen=True)
class Written:
    plan: RewritePlan
    receipt: Receipt
    folder: Path


def read_draft(reference: Path | Source, settings: Settings | None = None) -> Read:
    source = open_source(str(reference)) if isinstance(reference, Path) else reference
    checkpoint = collect(source)
    found = detect(checkpoint).format
    assert found is not None, "the format was not recognised"
    return Read(source, checkpoint, found.read(checkpoint, settings or Settings()).spec)


def plan_draft(read: Read, layout: str, *, target: Path | Source | None = None, **options: Any) -> RewritePlan:
    pairing, target_source = None, None
    if target is not None:
        target_source = open_source(str(target)) if isinstance(target, Path) else target
        pairing = collect_pairing(read.source, read.spec, read_tables(read.checkpoint), target_source, collect(target_source))
    chosen = layouts.find(layout)
    return chosen.plan(read.spec, read.checkpoint, gather(chosen, read.spec, read.checkpoint, (read.source, target_source), Options(pairing=pairing, **options)))


def normalize_draft(
    reference: Path | Source,
    out: Path,
    layout: str = "speculators",
    *,
    settings: Settings | None = None,
    target: Path | Source | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    link: bool = False,
    **options: Any,
) -> Written:
    read = read_draft(reference, settings)
    plan = plan_draft(read, layout, target=target, **options)
    target_source = None if target is None else open_source(str(target)) if isinstance(target, Path) else target
    return Written(plan, execute(plan, read.source, out, target=target_source, chunk_bytes=chunk_bytes, link=link), out)


def synthetic_draft(
    *,
    head: str = "vanilla",
    sampled: bool = True,
    reduced: bool = True,
    confidence: bool = True,
    layers: int = 1,
    hidden: int = 8,
    vocabulary: int = 24,
    rank: int = 4,
    seed: int = 0,
) -> dict[str, bytes]:
    """A whole Speculators draft as files in memory; its weights are random bytes, its vocabulary tables are sound."""
    dice = random.Random(seed)  # noqa: S311 (test data)
    draft_vocabulary = vocabulary // 2 if reduced else vocabulary
    chosen = sorted(dice.sample(range(vocabulary), draft_vocabulary))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {"fc.weight": ("BF16", (hidden, 2 * hidden)), "hidden_norm.weight": ("BF16", (hidden,)), "norm.weight": ("BF16", (hidden,))}
    rows = {
        "q_proj": (hidden, hidden),
        "k_proj": (hidden // 2, hidden),
        "v_proj": (hidden // 2, hidden),
        "o_proj": (hidden, hidden),
        "q_norm": (hidden // 2,),
        "k_norm": (hidden // 2,),
    }
    for layer in range(layers):
        shapes.update({f"layers.{layer}.self_attn.{name}.weight": ("BF16", shape) for name, shape in rows.items()})
        shapes.update({f"layers.{layer}.mlp.{name}.weight": ("BF16", (12, hidden)) for name in ("gate_proj", "up_proj")})
        shapes[f"layers.{layer}.mlp.down_proj.weight"] = ("BF16", (hidden, 12))
        shapes.update({f"layers.{layer}.{name}.weight": ("BF16", (hidden,)) for name in ("input_layernorm", "post_attention_layernorm")})
    shapes["markov_head.markov_w1.weight"], shapes["markov_head.markov_w2.weight"] = ("BF16", (vocabulary, rank)), ("BF16", (draft_vocabulary, rank))
    if head == "gated":
        shapes.update({"markov_head.gate_proj.weight": ("BF16", (rank, hidden + rank)), "markov_head.gate_proj.bias": ("BF16", (rank,))})
    if head == "rnn":
        shapes.update({"markov_head.joint_proj.weight": ("BF16", (3 * rank, 2 * rank + hidden)), "markov_head.joint_proj.bias": ("BF16", (3 * rank,))})
    if confidence:
        shapes.update({"confidence_head.proj.weight": ("BF16", (1, hidden + rank)), "confidence_head.proj.bias": ("BF16", (1,))})
    data = {name: dice.randbytes(tensor_size_bytes(dtype, shape)) for name, (dtype, shape) in shapes.items()}
    if reduced:
        shapes.update({"lm_head.weight": ("BF16", (draft_vocabulary, hidden)), "d2t": ("I64", (draft_vocabulary,)), "t2d": ("BOOL", (vocabulary,))})
        data["lm_head.weight"] = dice.randbytes(2 * draft_vocabulary * hidden)
        data["d2t"] = b"".join((target - index).to_bytes(8, "little") for index, target in enumerate(chosen))
        data["t2d"] = bytes(item in chosen for item in range(vocabulary))
    names = list(shapes)
    dice.shuffle(names)
    header = encode((Tensor(name, *shapes[name], 0, len(data[name])) for name in names), {"format": "pt", "written_by": "a test"})
    slots = 4
    backbone = {
        "model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 12, "num_hidden_layers": layers, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": hidden // 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
        "layer_types": ["full_attention"] * layers, "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    }  # fmt: skip
    table = {
        "algorithm": "dspark", "default_proposal_method": "greedy", "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": slots - (not sampled)}],
        "verifier": {"name_or_path": "example/target", "architectures": ["Qwen3ForCausalLM"]},
    }  # fmt: skip
    config = {
        "architectures": ["DSparkDraftModel"], "speculators_model_type": "dspark", "speculators_version": "0.8.1", "draft_vocab_size": draft_vocabulary,
        "block_size": slots, "sample_from_anchor": sampled, "aux_hidden_state_layer_ids": [1, 3], "mask_token_id": 2, "markov_rank": rank, "markov_head_type": head,
        "enable_confidence_head": confidence, "confidence_head_with_markov": True, "sliding_window_non_causal": False, "dtype": "bfloat16",
        "transformer_layer_config": backbone, "auto_map": {"": "config.DSparkSpeculatorConfig"}, "speculators_config": table,
    }  # fmt: skip
    return {
        "model.safetensors": header + b"".join(data[name] for name in names), "config.json": json.dumps(config).encode(), "config.py": b"raise SystemExit\n",
        "tokenizer.json": b"{}", "README.md": b"# A draft\n", "t2d.npy": b"\x93NUMPY", "LICENSE": b"Apache-2.0\n",
    }  # fmt: skip


def clean_copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to
