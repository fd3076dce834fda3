"""Train the two tiny sliding-window drafts with the speculators package's model and loss.

Run by ``make_fixtures.py sliding`` in the environment of release 0.9.0.  Each draft
starts from the weights of a trained full-attention draft (one of them without the
attention of its sliding layers) and learns on the target's own hidden states over Python's standard
library to work inside its window.  Files in
which a held-out prompt or text occurs are left out.  Seeds are fixed, but a retraining
is not byte-identical across machines; SHA256SUMS belongs to the files as committed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sysconfig
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from speculators.models.dspark import DSparkDraftModel
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen3Config

from fixtures_common import FULL, SLIDING, TRAINED
from fixtures_decoder import load_tensors
from fixtures_library import save_draft

TAPS = [1, 2, 3]
DOCUMENTS, LENGTH, ANCHORS = 4, 160, 80
WARMUP = 50


@dataclass(frozen=True)
class Recipe:
    """One sliding draft: what it starts from and what its config says."""

    source: str
    layer_types: tuple[str, ...]
    window: int
    non_causal: bool
    anchor: bool
    head: str
    block: int
    seed: int
    steps: int
    peak_rate: float
    fresh_attention: bool


RECIPES = {
    "tiny-sliding-causal": Recipe(
        source="tiny-anchor-full-vanilla",
        layer_types=(SLIDING, SLIDING),
        window=32,
        non_causal=False,
        anchor=True,
        head="vanilla",
        block=6,
        seed=20261129,
        steps=2400,
        peak_rate=2e-3,
        fresh_attention=True,
    ),
    "tiny-sliding-noncausal": Recipe(
        source="tiny-bonus-reduced-vanilla",
        layer_types=(SLIDING, FULL),
        window=24,
        non_causal=True,
        anchor=False,
        head="rnn",
        block=7,
        seed=20261130,
        steps=1500,
        peak_rate=1e-3,
        fresh_attention=False,
    ),
}


def held_out() -> list[bytes]:
    """Every held-out token window, as bytes of 16-bit ids."""
    rows = []
    for name in ("prompts.jsonl", "texts.jsonl"):
        for line in (TRAINED / name).read_text().splitlines():
            rows.append(pack(json.loads(line)["input_ids"][:24]))
    return rows


def pack(ids: list[int]) -> bytes:
    """Token ids as bytes, so that windows can be searched for."""
    return b"".join(i.to_bytes(2, "little") for i in ids)


def corpus() -> list[list[int]]:
    """Tokenised standard-library files without the held-out ones."""
    tokenizer = Tokenizer.from_file(str(TRAINED / "tiny-target" / "tokenizer.json"))
    secret, files, dropped = held_out(), [], 0
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [p for p in sorted(root.rglob("*.py")) if "site-packages" not in p.parts]
    for path in random.Random(1).sample(paths, min(700, len(paths))):  # noqa: S311 - a fixed choice of files
        text = path.read_text(encoding="utf-8", errors="ignore")[:60_000]
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        data = pack(ids)
        if any(s in data for s in secret):
            dropped += 1
        elif len(ids) > LENGTH:
            files.append(ids)
    print(f"{len(files)} files, {sum(map(len, files))} tokens, {dropped} held-out files dropped")
    return files


def new_draft(recipe: Recipe) -> DSparkDraftModel:
    """The library's model with this recipe's config and the source draft's weights."""
    source = json.loads((TRAINED / recipe.source / "config.json").read_text())
    weights = load_tensors(TRAINED / recipe.source)
    decoder = Qwen3Config(
        **source["transformer_layer_config"]
        | {
            "layer_types": list(recipe.layer_types),
            "sliding_window": recipe.window,
            "use_sliding_window": True,
        }
    )
    model = DSparkDraftModel.from_training_args(
        decoder,
        t2d=weights.get("t2d"),
        d2t=weights.get("d2t"),
        draft_vocab_size=source["draft_vocab_size"],
        block_size=recipe.block,
        target_layer_ids=TAPS,
        mask_token_id=source["mask_token_id"],
        verifier_name_or_path="target",
        draft_attn_impl="eager",
        sample_from_anchor=recipe.anchor,
        sliding_window_non_causal=recipe.non_causal,
        markov_rank=source["markov_rank"],
        markov_head_type=recipe.head,
    )
    missing = model.load_state_dict(weights, strict=False)
    if missing.unexpected_keys:
        raise SystemExit(f"unexpected weights: {missing.unexpected_keys}")
    if recipe.fresh_attention:
        forget_attention(model)
    if recipe.head == "rnn":
        start_recurrence(model)
    return model


@torch.no_grad()
def start_recurrence(model: DSparkDraftModel) -> None:
    """Let the new recurrent head begin near the vanilla one: its output copies W1[prev]."""
    rank, joint = model.config.markov_rank, model.markov_head.joint_proj
    joint.weight[2 * rank :].mul_(0.1)
    joint.weight[2 * rank :, rank : 2 * rank] += torch.eye(rank)
    joint.bias.zero_()


@torch.no_grad()
def forget_attention(model: DSparkDraftModel) -> None:
    """Restart the sliding layers' attention, so that nothing outside the window is known.

    A draft that learnt full attention first keeps working when a window is ignored.
    """
    for index in model.sliding_window_indices:
        attention = model.layers[index].self_attn
        for part in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
            part.weight.normal_(std=0.05)
        attention.q_norm.weight.fill_(1.0)
        attention.k_norm.weight.fill_(1.0)


def batch(files: list[list[int]], rng: random.Random, tail: int) -> dict[str, torch.Tensor]:
    """Windows of several files packed into one row."""
    windows = []
    for ids in rng.choices(files, weights=[len(f) for f in files], k=DOCUMENTS):
        start = rng.randrange(len(ids) - LENGTH)
        windows.append(ids[start : start + LENGTH])
    ids = torch.tensor(windows)
    mask = torch.ones_like(ids)
    mask[:, -tail:] = 0  # a block must not run into the next document
    documents = torch.arange(DOCUMENTS)[:, None].expand(-1, LENGTH)
    positions = torch.arange(LENGTH).expand(DOCUMENTS, -1)
    return {"ids": ids, "mask": mask, "documents": documents, "positions": positions}


@torch.no_grad()
def states(target: torch.nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tapped residual streams and the stream before the final norm."""
    kept: list[torch.Tensor] = []
    hook = target.model.norm.register_forward_pre_hook(lambda _m, args: kept.append(args[0]))
    hidden = target.model(ids, output_hidden_states=True).hidden_states
    hook.remove()
    return torch.cat([hidden[t] for t in TAPS], -1), kept[0]


def rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to zero."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def train(name: str, steps: int) -> None:
    """Train one recipe and save it as the library does."""
    recipe, started = RECIPES[name], time.monotonic()
    torch.manual_seed(recipe.seed)
    files, rng = corpus(), random.Random(recipe.seed)  # noqa: S311 - a fixed order of windows
    target = AutoModelForCausalLM.from_pretrained("target").float().eval()
    model = new_draft(recipe).train()
    options, _ = model.get_trainer_kwargs(loss_fn="kl_div", loss_implementation="eager", max_anchors=ANCHORS)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=recipe.peak_rate, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: rate(s, steps))
    running = None
    for step in range(steps):
        loss, metrics = train_step(model, target, batch(files, rng, recipe.block), options)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        if step % 100 == 0 or step == steps - 1:
            length = float(metrics["eal_sum"] / metrics["eal_total"])
            spent = time.monotonic() - started
            print(f"{name} step {step} loss {running:.4f} eal {length:.2f} {spent:.0f}s", flush=True)
    shutil.rmtree(TRAINED / name, ignore_errors=True)
    save_draft(model, TRAINED / name)


def train_step(model: DSparkDraftModel, target: torch.nn.Module, data: dict, options: dict) -> tuple[torch.Tensor, dict]:
    """The library's loss on one packed row."""
    aux, last = states(target, data["ids"])
    row = {k: v.reshape(1, -1) for k, v in data.items()}
    _, loss, metrics = model(
        hidden_states=aux.reshape(1, -1, aux.shape[-1]),
        input_ids=row["ids"],
        loss_mask=row["mask"],
        verifier_last_hidden_states=last.reshape(1, -1, last.shape[-1]),
        document_ids=row["documents"],
        position_ids=row["positions"],
        **options,
    )
    return loss, metrics


def main() -> None:
    """Train the named drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(RECIPES))
    parser.add_argument("--steps", type=int, help="in place of the recipe's number")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("target").symlink_to(TRAINED / "tiny-target")
        for name in options.names:
            train(name, options.steps or RECIPES[name].steps)


if __name__ == "__main__":
    main()
