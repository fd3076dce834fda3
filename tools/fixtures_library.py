"""Save random-weight drafts with the speculators package itself.

Run by ``make_fixtures.py library`` in the environment of one release.  Training
builds a draft with ``from_training_args`` and its checkpointer then calls
``save_pretrained`` with BF16 tensors and patches ``dtype``; the same calls are made
here, only the training in between is replaced by random weights.  So each folder is
what that release writes, file for file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import warnings
from pathlib import Path

import torch
from speculators.models.dspark import DSparkDraftModel
from speculators.train.checkpointer import convert_float_dtype, patch_config_dtype
from transformers import Qwen3Config, Qwen3ForCausalLM

from fixtures_common import FULL, LIBRARY, REDUCED_VOCAB, SLIDING, VOCAB, Variant, variants

TARGET_SEED = 20260901
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 32, 4, 2, 16, 48
ROPE_THETA = 50000.0
SPECIAL_IDS = 3  # eos 0, pad 1, mask 2


def _rope() -> dict:
    """Rope keys in the style of the transformers release in use."""
    if hasattr(Qwen3Config(), "rope_parameters"):
        return {"rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"}}
    return {"rope_theta": ROPE_THETA}


def decoder_config(layer_types: tuple[str, ...], window: int | None = None) -> Qwen3Config:
    """A Qwen3 decoder of the common tiny geometry."""
    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=len(layer_types),
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        layer_types=list(layer_types),
        use_sliding_window=SLIDING in layer_types,
        sliding_window=window,
        **_rope(),
    )


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    """Give every trainable weight a spread at which no part of the model is idle."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        if not weight.requires_grad:
            continue
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name:
            weight.copy_(1 + 0.15 * noise)
        elif "embed_tokens" in name:
            weight.copy_(0.5 * noise)
        elif "markov_w1" in name:
            weight.copy_(0.7 * noise)
        else:
            weight.copy_(0.2 * noise)


def save_target(folder: Path) -> None:
    """Save the random target that all library drafts share."""
    config = decoder_config((FULL,) * 4)
    config.eos_token_id, config.pad_token_id = 0, 1
    model = Qwen3ForCausalLM(config)
    randomise(model, TARGET_SEED)
    model.to(torch.bfloat16).save_pretrained(folder)


def vocabulary_maps(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A membership mask and offsets: which target ids the draft vocabulary keeps."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(VOCAB - SPECIAL_IDS, generator=generator)[:REDUCED_VOCAB]
    kept = (kept + SPECIAL_IDS).sort().values
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[kept] = True
    return t2d, kept - torch.arange(REDUCED_VOCAB)


def build_draft(variant: Variant) -> torch.nn.Module:
    """A draft as training would start it: verifier rows loaded, the rest random."""
    t2d, d2t = vocabulary_maps(variant.seed) if variant.reduced else (None, None)
    model = DSparkDraftModel.from_training_args(
        decoder_config(variant.layer_types, variant.window),
        t2d=t2d,
        d2t=d2t,
        draft_vocab_size=REDUCED_VOCAB if variant.reduced else VOCAB,
        block_size=variant.block,
        target_layer_ids=list(variant.taps),
        mask_token_id=2,
        verifier_name_or_path="target",
        draft_attn_impl="eager",
        sample_from_anchor=variant.anchor,
        sliding_window_non_causal=variant.non_causal,
        markov_rank=variant.markov_rank,
        markov_head_type=variant.head,
        enable_confidence_head=variant.confidence,
        confidence_head_with_markov=variant.confidence_with_markov,
    )
    randomise(model, variant.seed)
    return model


def save_draft(model: torch.nn.Module, folder: Path, max_shard_size: str | None = None) -> None:
    """Save as the library's checkpointer does."""
    options = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    state = convert_float_dtype(model.state_dict(), torch.bfloat16)
    model.save_pretrained(folder, state_dict=state, **options)
    patch_config_dtype(folder / "config.json", torch.bfloat16)


def main() -> None:
    """Write the target or all drafts of the release in this environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--target", action="store_true", help="write the shared target instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    LIBRARY.mkdir(parents=True, exist_ok=True)
    os.chdir(LIBRARY)  # so that the verifier can be named by the plain word "target"
    if options.target:
        shutil.rmtree("target", ignore_errors=True)
        save_target(Path("target"))
        return
    for variant in variants(options.version):
        folder = Path(options.version) / variant.name
        shutil.rmtree(folder, ignore_errors=True)
        save_draft(build_draft(variant), folder, variant.max_shard_size)
        print(folder, sorted(p.name for p in folder.iterdir()))


if __name__ == "__main__":
    main()
