"""A tiny Qwen3-VL target and a DSpark draft for it, in fixtures/multimodal/: constructed, not trained (see constructed.py).

~/.cache/spec-convert/envs/speculators-0.9.0/bin/python tools/make_vl_target.py
"""

from __future__ import annotations

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from constructed import FOLDER, HIDDEN, IDS, VISION, VOCAB, construct, follows, make_draft, sample_prompts, save_target

SEED = 20260911


def config() -> Qwen3VLConfig:
    """Four layers of softmax attention with interleaved mRoPE, two of vision."""
    return Qwen3VLConfig(
        text_config={
            "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
            "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "eos_token_id": 0, "pad_token_id": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [12, 10, 10], "mrope_interleaved": True},
        },
        vision_config={**VISION, "deepstack_visual_indexes": [0]}, tie_word_embeddings=False, **IDS,
    )  # fmt: skip


def main() -> None:
    """Write vl-target and vl-draft."""
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = Qwen3VLForConditionalGeneration(config())
    successor = construct(model, seed=SEED, mixing=0.16, peak=2.0, gain=4.0)
    share, gap = follows(model, successor, sample_prompts(), 48)
    print(f"vl-target: {share:.0%} of greedy steps take the successor, median gap {gap:.2f}")
    save_target(model, FOLDER / "vl-target")
    make_draft(FOLDER / "vl-draft", "vl-target", successor, seed=SEED + 1)


if __name__ == "__main__":
    main()
