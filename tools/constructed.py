"""Tiny image-text targets without training, and DSpark drafts that fit them. Runs in the environment of `fixtures_env.sh 0.9.0`.

A target's next token is mostly a fixed permutation of the last one; attention and state, which are random and strong, change
it in between. So greedy output depends on each position and on each state, a draft that knows the permutation alone is
accepted a few tokens at a time, and a wrong position or state shows as other tokens.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from speculators.models.dspark import DSparkDraftModel
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config

from fixtures_common import FIXTURES, TRAINED
from fixtures_library import save_draft

FOLDER = FIXTURES / "multimodal"
TEXT_TOKENS, VOCAB, HIDDEN = 1024, 1088, 64
MARKS = {"<|vision_start|>": 1024, "<|vision_end|>": 1025, "<|image_pad|>": 1026, "<|video_pad|>": 1027}
MASK, RANK, BLOCK, TAPS = 2, 32, 6, [1, 2, 3]
PATCH, MERGE = 16, 2
VISION = {
    "depth": 2, "hidden_size": 64, "num_heads": 1, "intermediate_size": 64, "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2,
    "out_hidden_size": HIDDEN, "num_position_embeddings": 64, "in_channels": 3,
}  # fmt: skip
IDS = {"image_token_id": 1026, "video_token_id": 1027, "vision_start_token_id": 1024, "vision_end_token_id": 1025}


def permutation(generator: torch.Generator) -> Tensor:
    """Successor of each text token but eos, pad and mask; one cycle, so that no request runs into a short loop."""
    order = torch.randperm(TEXT_TOKENS - 3, generator=generator) + 3
    successor = torch.arange(VOCAB)
    successor[order] = order.roll(-1)
    return successor


def unit(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random directions."""
    return torch.nn.functional.normalize(torch.randn(rows, columns, generator=generator), dim=-1)


@torch.no_grad()
def construct(model: PreTrainedModel, *, seed: int, mixing: float, peak: float, gain: float) -> Tensor:
    """Fill `model`; returns the successors. `mixing` scales attention and state outputs, `peak` the sharpness of attention, `gain` the logits."""
    generator = torch.Generator().manual_seed(seed)
    successor = permutation(generator)
    codes = unit(VOCAB, HIDDEN, generator)
    for name, weight in sorted(model.named_parameters()):
        weight.copy_(_filled(name, weight, codes, successor, generator, mixing=mixing, peak=peak, gain=gain))
    return successor


def _filled(name: str, weight: Tensor, codes: Tensor, successor: Tensor, generator: torch.Generator, *, mixing: float, peak: float, gain: float) -> Tensor:
    noise = torch.randn(weight.shape, generator=generator)
    scaled = noise / weight.shape[-1] ** 0.5
    if name.endswith("embed_tokens.weight"):
        return codes
    if name.endswith("lm_head.weight"):
        head = torch.zeros_like(codes)
        head[successor[3:TEXT_TOKENS]] = gain * codes[3:TEXT_TOKENS]
        return head
    if "q_norm" in name or "k_norm" in name:
        return torch.full_like(weight, peak)
    if name.endswith(("o_proj.weight", "out_proj.weight")):
        return mixing * scaled
    if name.endswith("down_proj.weight"):
        return 0.1 * scaled
    if "norm" in name:
        return _neutral_norm(name, weight)
    if name.endswith(("A_log", "dt_bias")):
        return noise.abs() * 0.5 - (0.5 if name.endswith("A_log") else 1.0)
    if name.endswith("bias"):
        return 0.02 * noise
    return scaled if weight.dim() == 2 else noise / weight[0].numel() ** 0.5


def _neutral_norm(name: str, weight: Tensor) -> Tensor:
    """What leaves a normalised value as it is: Qwen3.5 stores its norms' weights minus 1, but for the gated one. Biases are 0."""
    if name.endswith("bias"):
        return torch.zeros_like(weight)
    return torch.full_like(weight, float(weight[0].round()))


@torch.no_grad()
def make_draft(folder: Path, verifier: str, successor: Tensor, *, seed: int) -> None:
    """A draft whose Markov head knows the successors, with a confidence head that differs between contexts, as the library saves it."""
    generator = torch.Generator().manual_seed(seed)
    decoder = Qwen3Config(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        max_position_embeddings=1024, tie_word_embeddings=False, layer_types=["full_attention"] * 2, rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
    )  # fmt: skip
    there = Path.cwd()
    os.chdir(FOLDER)  # so that the verifier can be named by a plain word
    model = DSparkDraftModel.from_training_args(
        decoder, t2d=None, d2t=None, draft_vocab_size=VOCAB, block_size=BLOCK, target_layer_ids=list(TAPS), mask_token_id=MASK, verifier_name_or_path=verifier,
        draft_attn_impl="eager", sample_from_anchor=True, sliding_window_non_causal=False, markov_rank=RANK, markov_head_type="vanilla",
        enable_confidence_head=True, confidence_head_with_markov=True,
    )  # fmt: skip
    codes = unit(VOCAB, RANK, generator)
    for name, weight in sorted(model.named_parameters()):
        if weight.requires_grad:
            weight.copy_(_draft_weight(name, weight, codes, successor, generator))
    shutil.rmtree(folder, ignore_errors=True)
    save_draft(model, folder.resolve() if folder.is_absolute() else folder)
    os.chdir(there)


def _draft_weight(name: str, weight: Tensor, codes: Tensor, successor: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(weight.shape, generator=generator)
    if name.endswith("markov_w1.weight"):
        return codes
    if name.endswith("markov_w2.weight"):
        steps = torch.zeros_like(codes)
        steps[successor[3:TEXT_TOKENS]] = 12.0 * codes[3:TEXT_TOKENS]
        return steps
    if "confidence_head" in name:
        return torch.full_like(weight, 1.5) if name.endswith("bias") else torch.cat([0.25 * noise[:, :HIDDEN] * 8, 1.5 * noise[:, HIDDEN:]], 1)
    if name == "norm.weight":
        return torch.full_like(weight, 0.1)
    return 1 + 0.05 * noise if "norm" in name else noise / weight.shape[-1] ** 0.5


def save_processor(folder: Path) -> None:
    """Tokenizer of the trained target plus the image marks, and the processor's settings, so that nothing is fetched."""
    tokenizer = json.loads((TRAINED / "tiny-target/tokenizer.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"] += [{"id": number, "content": text, **flags} for text, number in MARKS.items()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    stated = json.loads((TRAINED / "tiny-target/tokenizer_config.json").read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1024}
    stated |= {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>"}
    _write(folder / "tokenizer_config.json", stated)
    common = {
        "patch_size": PATCH, "temporal_patch_size": 2, "merge_size": MERGE, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 4096, "longest_edge": 65536},
    }  # fmt: skip
    _write(folder / "preprocessor_config.json", {**common, "image_processor_type": "Qwen2VLImageProcessorFast"})
    _write(folder / "video_preprocessor_config.json", {**common, "video_processor_type": "Qwen3VLVideoProcessor"})
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    part = "{% if part['type'] == 'image' %}" + mark + "{% else %}{{ part['text'] }}{% endif %}"
    template = "{% for message in messages %}{% for part in message['content'] %}" + part + "{% endfor %}{% endfor %}"
    _write(folder / "chat_template.json", {"chat_template": template})


def save_target(model: PreTrainedModel, folder: Path) -> None:
    """Weights in bfloat16, config, tokenizer and processor."""
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    save_processor(folder)


def _write(path: Path, table: dict) -> None:
    path.write_text(json.dumps(table, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


@torch.no_grad()
def follows(model: PreTrainedModel, successor: Tensor, prompts: list[list[int]], tokens: int) -> tuple[float, float]:
    """Share of greedy steps that take the successor, and the median gap between the two best logits, in float32."""
    model, hits, gaps = model.float().eval(), [], []
    for prompt in prompts:
        out = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=tokens, do_sample=False,
            return_dict_in_generate=True, output_logits=True, pad_token_id=1, eos_token_id=None,
        )  # fmt: skip
        ids = out.sequences[0, len(prompt) - 1 :]
        hits += (successor[ids[:-1]] == ids[1:]).tolist()
        best = torch.stack(out.logits)[:, 0].topk(2).values
        gaps += (best[:, 0] - best[:, 1]).tolist()
    return sum(hits) / len(hits), sorted(gaps)[len(gaps) // 2]


def sample_prompts(count: int = 4) -> list[list[int]]:
    """Prompts of the trained target's file; its tokens are the text tokens here."""
    lines = (TRAINED / "prompts.jsonl").read_text().splitlines()[:count]
    return [json.loads(line)["input_ids"] for line in lines]
