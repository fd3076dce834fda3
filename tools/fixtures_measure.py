"""Measure trained drafts: greedy acceptance, and agreement with the target on real text.

Run by ``make_fixtures.py measure``.  It shows that a draft has learnt something and
that its window, causality, layout and head matter: each wrong reading is measured on
the same prompts.  Uses only the independent decoder and transformers' target.
"""

from __future__ import annotations

import argparse
import copy
import json
import warnings
from collections.abc import Callable, Iterator

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from fixtures_common import FULL, ORACLE, TRAINED
from fixtures_decoder import Draft

NEW_TOKENS = 64
Reading = Callable[[Draft], None]


class Target:
    """The trained target in float32: logits and tapped residual streams."""

    def __init__(self) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(TRAINED / "tiny-target").float().eval()

    @torch.no_grad()
    def run(self, ids: list[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Logits ``[n, V]`` and the residual streams."""
        out = self.model(torch.tensor([ids]), output_hidden_states=True)
        return out.logits[0], tuple(h[0] for h in out.hidden_states)


def aux(draft: Draft, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Tapped states in list order."""
    return torch.cat([hidden[i] for i in draft.config["aux_hidden_state_layer_ids"]], -1)


@torch.no_grad()
def speculate(draft: Draft, target: Target, prompt: list[int]) -> tuple[list[int], int]:
    """Greedy speculative decoding; returns the output and the number of verify steps."""
    logits, hidden = target.run(prompt)
    known, steps = [*prompt, int(logits[-1].argmax())], 0
    while len(known) - len(prompt) < NEW_TOKENS:
        anchor = len(known) - 1
        context = draft.context(aux(draft, hidden)[:anchor])
        drafted = draft.propose(known[-1], context)
        logits, hidden = target.run(known + drafted)
        best = logits[anchor:].argmax(-1).tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == best[accepted]:
            accepted += 1
        known += best[: accepted + 1]
        steps += 1
    return known[len(prompt) :], steps


def acceptance(draft: Draft, target: Target, rows: list[dict]) -> tuple[float, list[float]]:
    """Tokens for each verify step over all prompts, and prompt by prompt."""
    tokens, steps, each = 0, 0, []
    for row in rows:
        output, count = speculate(draft, target, row["input_ids"])
        if output[:NEW_TOKENS] != row["greedy_output_ids_float32"]:
            raise SystemExit("speculative output differs from the target's greedy output")
        tokens, steps = tokens + len(output) - 1, steps + count
        each.append((len(output) - 1) / count)
    return tokens / steps, each


@torch.no_grad()
def teacher_forced(draft: Draft, target: Target, rows: list[dict]) -> tuple[float, float]:
    """KL(target || draft) at the first sampled slot; top-1 agreement over all slots."""
    kept = draft.d2t + torch.arange(len(draft.head))
    divergence, hits, slots = [], 0, 0
    for row in rows:
        ids = row["input_ids"]
        logits, hidden = target.run(ids)
        context, first = draft.context(aux(draft, hidden)), 0 if draft.anchor_first else 1
        for anchor in range(24, len(ids) - draft.block, 3):
            offsets = torch.arange(draft.block) - (0 if draft.anchor_first else 1)
            previous = torch.tensor(ids)[anchor + offsets.clamp(min=0)]
            h = draft.hidden(ids[anchor], context[:anchor])
            mine = draft.logits(h, previous)[first:].log_softmax(-1)
            theirs = logits[anchor + offsets[first:]][:, kept].log_softmax(-1)
            divergence.append(float((theirs[0].exp() * (theirs[0] - mine[0])).sum()))
            hits += int((mine.argmax(-1) == theirs.argmax(-1)).sum())
            slots += len(mine)
    return sum(divergence) / len(divergence), hits / slots


def _window(factor: float, more: int = 0) -> Reading:
    def change(draft: Draft) -> None:
        draft.decoder["sliding_window"] = int(draft.decoder["sliding_window"] * factor) + more

    return change


def _all_full(draft: Draft) -> None:
    draft.decoder["layer_types"] = [FULL] * len(draft.decoder["layer_types"])


def _swap_layers(draft: Draft) -> None:
    draft.decoder["layer_types"] = draft.decoder["layer_types"][::-1]


def _flip_causality(draft: Draft) -> None:
    draft.config["sliding_window_non_causal"] = not draft.config["sliding_window_non_causal"]


def _flip_layout(draft: Draft) -> None:
    draft.anchor_first = not draft.anchor_first


def _no_markov(draft: Draft) -> None:
    draft.config["markov_rank"] = 0


def _vanilla(draft: Draft) -> None:
    draft.config["markov_head_type"] = "vanilla"


READINGS: dict[str, Reading] = {
    "right": lambda _draft: None,
    "window x 1/4": _window(0.25),
    "window x 1/2": _window(0.5),
    "window x 2": _window(2),
    "window ignored": _window(1000),
    "layer types reversed": _swap_layers,
    "causality of sliding layers flipped": _flip_causality,
    "window + 1": _window(1, 1),
    "all layers full attention": _all_full,
    "sample_from_anchor flipped": _flip_layout,
    "Markov head off": _no_markov,
    "head read as vanilla": _vanilla,
}


def variants(name: str) -> Iterator[tuple[str, Draft]]:
    """The draft under each reading."""
    base = Draft(TRAINED / name, TRAINED / "tiny-target")
    for label, change in READINGS.items():
        draft = copy.copy(base)
        draft.config = copy.deepcopy(base.config)
        draft.decoder = draft.config["transformer_layer_config"]
        change(draft)
        yield label, draft


def against_oracle(name: str) -> None:
    """Print how far each reading's logits are from the package's own, at most and on average."""
    oracle = load_file(ORACLE / f"{name}.safetensors")
    for label, draft in variants(name):
        gaps = []
        for row, anchor in enumerate(oracle["anchors"].tolist()):
            context = draft.context(oracle["aux_hidden_states"][:anchor])
            hidden = draft.hidden(int(oracle["input_ids"][anchor]), context)
            gaps.append((draft.logits(hidden, oracle["prev_token_ids"][row]) - oracle["logits"][row]).abs())
        gap = torch.stack(gaps)
        print(f"| {label} | {gap.max():.1e} | {gap.mean():.1e} |", flush=True)


def report(name: str, target: Target, prompts: list[dict], texts: list[dict], only: str) -> None:
    """Print one line for each reading."""
    right: list[float] = []
    for label, draft in variants(name):
        if only not in ("", label):
            continue
        length, each = acceptance(draft, target, prompts)
        right = right or each
        worse = sum(a < b for a, b in zip(each, right, strict=True))
        better = sum(a > b for a, b in zip(each, right, strict=True))
        kl, top = teacher_forced(draft, target, texts)
        print(f"| {label} | {length:.2f} ({worse}/{better}) | {kl:.2f} / {top:.0%} |", flush=True)


def main() -> None:
    """Measure the named drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--only", default="", help="one reading")
    parser.add_argument("--logits", action="store_true", help="distance from the oracle instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.logits:
        for name in options.names:
            print(f"{name}\n| reading | largest | mean |")
            against_oracle(name)
        return
    rows = {name: [json.loads(line) for line in (TRAINED / f"{name}.jsonl").read_text().splitlines()] for name in ("prompts", "texts")}
    target = Target()
    for name in options.names:
        print(f"{name}\n| reading | acceptance (worse/better) | KL / top-1 |", flush=True)
        report(name, target, rows["prompts"], rows["texts"], options.only)


if __name__ == "__main__":
    main()
