"""What one rank of two computes; the test starts both and compares them with a single rank."""

import os
from pathlib import Path

import torch
from sglang.srt.speculative.dspark_components import dspark_draft

from sglang_harness.draft import load_draft, start_world


class Sync:
    """Rank 0's tokens for all, as a server does."""

    def sync(self, site, tokens):
        torch.distributed.broadcast(tokens, 0)
        return tokens


@torch.no_grad()
def draft_blocks(model, sync) -> dict[str, torch.Tensor]:
    """Base logits, greedy and sampled blocks of three anchors, from fixed states."""
    width = int(model.config.hidden_size)
    states = torch.randn(3, model.gamma, width, generator=torch.Generator().manual_seed(3)) * 2
    base, _ = model.compute_base_logits(states.reshape(-1, width))
    found = {"base": base}
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        tokens, kept = dspark_draft.draft_markov_block(
            markov_head=model.markov_head, base_logits=base.view(3, model.gamma, -1), anchor_tokens=torch.tensor([7, 50, 90]), draft_hidden=states,
            step_temperatures=torch.full((3,), temperature), noise=dspark_draft.DraftNoise(key=5, offset=torch.zeros(1, dtype=torch.int64)), tp_sync=sync,
        )  # fmt: skip
        found |= {f"{name} tokens": tokens, f"{name} logits": kept}
    return found


def run(rank: int, port: int, cases: list[tuple[str, str]], out: str) -> None:
    """Entry of one rank: writes, for each draft and target, its results and its own rows of both heads."""
    os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "0|1"
    start_world(Path(cases[0][1]), rank=rank, tp=2, port=port)
    results = []
    for draft, target in cases:
        model = load_draft(Path(draft), Path(target))
        head, w2 = model.draft_lm_head.weight.detach(), model.markov_head.markov_w2.weight.detach()
        results.append({**draft_blocks(model, Sync()), "head rows": head, "w2 rows": w2})
    torch.save(results, out)
