"""A tiny Qwen3.5 target (three layers of gated delta net, one of attention, with a vision tower) and a DSpark draft for it.

    ~/.cache/spec-convert/envs/speculators-0.9.0/bin/python tools/make_hybrid_target.py

Constructed, not trained (see constructed.py). Head widths are those of the published models, which the kernels were made for.
"""

from __future__ import annotations

import torch
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from constructed import FOLDER, HIDDEN, IDS, VISION, VOCAB, construct, follows, make_draft, sample_prompts, save_target

SEED = 20260912


def config() -> Qwen3_5Config:
    """The published layer pattern, once."""
    return Qwen3_5Config(
        text_config={
            "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
            "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "eos_token_id": 0, "pad_token_id": 1,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"], "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
            "partial_rotary_factor": 0.25, "mamba_ssm_dtype": "float32", "attn_output_gate": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [6, 5, 5], "mrope_interleaved": True},
        },
        vision_config={**VISION, "deepstack_visual_indexes": []}, tie_word_embeddings=False, **IDS,
    )  # fmt: skip


def main() -> None:
    """Write hybrid-target and hybrid-draft."""
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = Qwen3_5ForConditionalGeneration(config())
    successor = construct(model, seed=SEED, mixing=0.22, peak=1.0, gain=4.0)
    share, gap = follows(model, successor, sample_prompts(), 48)
    print(f"hybrid-target: {share:.0%} of greedy steps take the successor, median gap {gap:.2f}")
    save_target(model, FOLDER / "hybrid-target")
    make_draft(FOLDER / "hybrid-draft", "hybrid-target", successor, seed=SEED + 1)


if __name__ == "__main__":
    main()
