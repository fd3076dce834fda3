"""Make checkpoints of real shape that take no room: headers and vocabulary tables are written, weights are holes.

python tools/make_sparse.py OUT                        the shape of a 1.90 GB draft, 66 tensors
python tools/make_sparse.py OUT --layers 1818 --shard-bytes 5000000000   about 206 GB, 20,009 tensors
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speculators_convert.container.header import DTYPE_BITS, Tensor, encode, tensor_size_bytes
from speculators_convert.container.index import INDEX_NAME, encode_index

HIDDEN, INTERMEDIATE, HEAD_DIM, HEADS, KEY_VALUE_HEADS, RANK = 2048, 6144, 256, 16, 2, 256
TARGET_VOCABULARY, DRAFT_VOCABULARY = 248_320, 32_000
TAPS = (2, 10, 20, 30, 37)


@dataclass(frozen=True)
class Entry:
    """A tensor to write; `data` is None for a hole."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None

    @property
    def size_bytes(self) -> int:
        return tensor_size_bytes(self.dtype, self.shape)


def target_ids() -> np.ndarray:
    """The target ids that the reduced vocabulary keeps: evenly spread, ascending."""
    return np.arange(DRAFT_VOCABULARY, dtype=np.int64) * TARGET_VOCABULARY // DRAFT_VOCABULARY


def layer(number: int) -> list[Entry]:
    """The eleven tensors of one decoder layer."""
    query, key_value = HEADS * HEAD_DIM, KEY_VALUE_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (HIDDEN,),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.k_norm": (HEAD_DIM,),
        "self_attn.k_proj": (key_value, HIDDEN),
        "self_attn.o_proj": (HIDDEN, query),
        "self_attn.q_norm": (HEAD_DIM,),
        "self_attn.q_proj": (query, HIDDEN),
        "self_attn.v_proj": (key_value, HIDDEN),
    }
    return [Entry(f"layers.{number}.{name}.weight", "BF16", shape) for name, shape in shapes.items()]


def entries(layers: int) -> list[Entry]:
    """All tensors, eleven and eleven for each layer, in the order in which safetensors saves them: wide types first, then by name."""
    ids = target_ids()
    mask = np.zeros(TARGET_VOCABULARY, np.uint8)
    mask[ids] = 1
    top = [
        Entry("confidence_head.proj.bias", "BF16", (1,)),
        Entry("confidence_head.proj.weight", "BF16", (1, HIDDEN + RANK)),
        Entry("embed_tokens.weight", "BF16", (TARGET_VOCABULARY, HIDDEN)),
        Entry("fc.weight", "BF16", (HIDDEN, len(TAPS) * HIDDEN)),
        Entry("hidden_norm.weight", "BF16", (HIDDEN,)),
        Entry("lm_head.weight", "BF16", (DRAFT_VOCABULARY, HIDDEN)),
        Entry("markov_head.markov_w1.weight", "BF16", (TARGET_VOCABULARY, RANK)),
        Entry("markov_head.markov_w2.weight", "BF16", (DRAFT_VOCABULARY, RANK)),
        Entry("norm.weight", "BF16", (HIDDEN,)),
        Entry("t2d", "BOOL", (TARGET_VOCABULARY,), mask.tobytes()),
    ]
    d2t = Entry("d2t", "I64", (DRAFT_VOCABULARY,), (ids - np.arange(DRAFT_VOCABULARY)).tobytes())
    found = [d2t, *top, *(entry for number in range(layers) for entry in layer(number))]
    return sorted(found, key=lambda entry: (-DTYPE_BITS[entry.dtype], entry.name))


def config(layers: int) -> dict[str, object]:
    """The config of a Speculators DSpark draft of this shape."""
    decoder = {
        "attention_bias": False, "attention_dropout": 0.0, "head_dim": HEAD_DIM, "hidden_act": "silu", "hidden_size": HIDDEN,
        "initializer_range": 0.02, "intermediate_size": INTERMEDIATE, "layer_types": ["sliding_attention"] * layers,
        "max_position_embeddings": 262_144, "max_window_layers": 0, "model_type": "qwen3", "num_attention_heads": HEADS,
        "num_hidden_layers": layers, "num_key_value_heads": KEY_VALUE_HEADS, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10_000_000.0, "rope_type": "default"}, "sliding_window": 2048,
        "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": True, "vocab_size": TARGET_VOCABULARY,
    }  # fmt: skip
    method = {"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": 8, "verifier_accept_k": 1}
    verifier = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "name_or_path": "Qwen/Qwen3.6-35B-A3B"}
    return {
        "architectures": ["Qwen3DSparkModel"], "aux_hidden_state_layer_ids": list(TAPS), "block_size": 8, "confidence_head_with_markov": True,
        "draft_vocab_size": DRAFT_VOCABULARY, "dtype": "bfloat16", "enable_confidence_head": True, "markov_head_type": "vanilla", "markov_rank": RANK,
        "mask_token_id": 248_077, "sample_from_anchor": True, "sliding_window_non_causal": False,
        "speculators_config": {"algorithm": "dspark", "default_proposal_method": "greedy", "proposal_methods": [method], "verifier": verifier},
        "speculators_model_type": "dspark", "speculators_version": "0.9.0", "tie_word_embeddings": False,
        "transformer_layer_config": decoder, "transformers_version": "5.19.0",
    }  # fmt: skip


def write_file(path: Path, content: Sequence[Entry]) -> None:
    """One safetensors file; entries without data become holes."""
    header = encode((Tensor(entry.name, entry.dtype, entry.shape, 0, entry.size_bytes) for entry in content), {"format": "pt"})
    with path.open("wb") as file:
        file.write(header)
        position = len(header)
        for entry in content:
            if entry.data is not None:
                file.seek(position)
                file.write(entry.data)
            position += entry.size_bytes
        file.truncate(position)


def shards(content: Sequence[Entry], limit_bytes: int) -> list[list[Entry]]:
    """The entries in order, cut before a shard grows over the limit."""
    found: list[list[Entry]] = [[]]
    size = 0
    for entry in content:
        if found[-1] and size + entry.size_bytes > limit_bytes:
            found.append([])
            size = 0
        found[-1].append(entry)
        size += entry.size_bytes
    return found


def make(out: Path, layers: int = 5, shard_bytes: int | None = None) -> None:
    """A checkpoint folder in `out`: one file, or shards and an index."""
    out.mkdir(parents=True)
    content = entries(layers)
    (out / "config.json").write_text(json.dumps(config(layers), indent=2) + "\n")
    if shard_bytes is None:
        write_file(out / "model.safetensors", content)
        return
    parts = shards(content, shard_bytes)
    weight_map = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        write_file(out / name, part)
        weight_map |= {entry.name: name for entry in part}
    index = encode_index(weight_map, sum(entry.size_bytes for entry in content))
    (out / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--shard-bytes", type=int)
    arguments = parser.parse_args()
    make(arguments.out, arguments.layers, arguments.shard_bytes)


if __name__ == "__main__":
    main()
