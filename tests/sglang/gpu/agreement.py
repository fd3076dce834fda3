"""The reference engine beside a server: the same block after the same tokens, and acceptance over the same prompts. Needs a GPU, or patience."""

from pathlib import Path
from typing import Any

import torch
from sglang_harness.environment import TRAINED

from speculators_convert import api
from speculators_convert.smoke.engine import decode, load, loop
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target


def engine(fixture: str | Path, device: str, dtype: str, target_folder: Path = TRAINED / "tiny-target") -> tuple[Draft, Target]:
    """Draft and target of the reference engine; a trained fixture's name, or a folder."""
    inspection = api.look(str(TRAINED / fixture))
    where = load.placement(dtype, device)
    target = load_target(target_folder, inspection.spec.target_layer_ids, where)
    return Draft(Reading(inspection.spec), load.read_weights(inspection.spec, inspection.source, where), target.shared), target


@torch.no_grad()
def compare_blocks(draft: Draft, target: Target, tokens: list[int], recorded: list[dict[str, Any]]) -> tuple[int, int]:
    """Slots that agree, and all slots, over the blocks that a server drafted while it wrote `tokens` (prompt and answer).

    Each slot is asked after the very tokens that the server's block has before it, so that a slot counts once and not in those behind it too.
    The last blocks of a request may start behind the end of its answer; their tokens are not known, and they are left out.
    """
    ids, positions = torch.tensor([tokens], device=target.device), torch.arange(len(tokens), device=target.device)[None]
    step = target.forward(ids, positions, target.cache(1, len(tokens)), len(tokens))
    context = draft.cache(1, len(tokens))
    draft.append(context, step.fused, positions)
    agreed = total = 0
    for block in recorded:
        at = block["context"]
        if at >= len(tokens):
            continue
        if tokens[at] != block["anchor"]:
            raise ValueError(f"a recorded block does not belong to these tokens: anchor {block['anchor']} at {at}")
        anchor = ids[:, at]
        hidden = draft.hidden(anchor, positions[:, at], context, at)
        before = torch.tensor([[block["anchor"]] * (draft.first + 1) + block["drafted"][:-1]], device=target.device)
        best = draft.vocabulary.best(decode.score(draft, hidden, before)[0, draft.first :])[1]
        mine = draft.target_ids[best].tolist()
        agreed += sum(left == right for left, right in zip(mine, block["drafted"], strict=True))
        total += len(mine)
    return agreed, total


def accept(draft: Draft, target: Target, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Accepted draft tokens of each verify step, by prompt, in the engine's own greedy decoding."""
    return [run.accepted for prompt in prompts for run in loop.generate(draft, target, [prompt], loop.Limits(tokens))]
