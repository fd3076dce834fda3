"""Record what the speculators package's own model computes for a draft.

Run by ``make_fixtures.py oracle`` in the environment of one release.  The logits are
taken from inside ``DSparkDraftModel.forward``: the anchor selection is replaced by a
fixed list, and the arguments of the loss function are kept.  Nothing of the model's
arithmetic is replaced.  Float32, eager attention, weights as stored (BF16 values).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch
from safetensors.torch import save_file
from speculators.models.dflash import core as dflash_core
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
from speculators.models.dspark import core as dspark_core
from transformers import AutoModelForCausalLM

from fixtures_common import LIBRARY, ORACLE, TRAINED
from fixtures_decoder import Draft, load_tensors

LIBRARY_TOKENS, TRAINED_TOKENS = 28, 60
TOLERANCE = 1e-4
MEANING = {
    "row": "logits[a, k] is slot k of the block whose anchor is position anchors[a]; slot 0 holds the anchor token, the others the mask token",
    "context": "aux_hidden_states[: anchors[a]], strictly before the anchor",
    "logits": "lm_head(hidden) + Markov bias for prev_token_ids[a, k] (target-vocabulary id)",
    "prev_token_ids": "sample_from_anchor true: input_ids[anchor + k]; false: input_ids[anchor + max(k - 1, 0)]",
    "predicts": "sample_from_anchor true: token anchor + k + 1; false: token anchor + k (slot 0 is then neither trained nor sampled)",
    "confidence_logits": "before the sigmoid, same hidden state and previous token",
}


class StopAtLossError(Exception):
    """Stops the forward pass at the loss, with what was about to be scored."""


@torch.no_grad()
def target_states(folder: Path, ids: torch.Tensor, taps: list[int]) -> tuple[torch.Tensor, ...]:
    """The residual stream after ``taps`` layers, concatenated, and after the last layer."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()
    streams = {0: model.model.embed_tokens(ids)}
    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda _m, _a, out, i=i: streams.update({i + 1: out[0] if isinstance(out, tuple) else out}))
    model(ids)
    return torch.cat([streams[t] for t in taps], -1), streams[len(model.model.layers)]


def load_draft(folder: Path) -> DSparkDraftModel:
    """The library's model with the folder's weights in float32, checked against the file."""
    config = DSparkSpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    model = DSparkDraftModel.from_pretrained(folder, config=config, dtype=torch.float32)
    model = model.float().eval()
    state = model.state_dict()
    for name, stored in load_tensors(folder).items():
        if not torch.equal(state[name], stored):
            raise SystemExit(f"{folder}: the library did not load {name} as stored")
    if any(value.isnan().any() for value in state.values()):
        raise SystemExit(f"{folder}: NaN after loading")
    return model


@torch.no_grad()
def capture(model: DSparkDraftModel, ids: torch.Tensor, states: tuple, anchors: torch.Tensor) -> dict:
    """Run the library's forward over fixed anchors and keep what it computed."""
    kept: dict = {}

    def keep(
        logits: torch.Tensor,
        _targets: torch.Tensor,
        confidence: torch.Tensor | None,
        *_args: object,
        **_kwargs: object,
    ) -> NoReturn:
        kept.update(logits=logits, confidence_logits=confidence)
        raise StopAtLossError

    if model.markov_head is not None:
        bias = model.markov_head.block_bias

        def with_note(**arguments: torch.Tensor) -> torch.Tensor:
            kept["prev_token_ids"] = arguments["prev_token_ids"]
            return bias(**arguments)

        model.markov_head.block_bias = with_note
    dflash_core.select_anchors = lambda *_: (anchors, torch.ones(len(anchors), dtype=torch.bool))
    dspark_core.compute_metrics = keep
    model.norm.register_forward_hook(lambda _m, _a, out: kept.update(hidden=out))
    with suppress(StopAtLossError):
        model(
            hidden_states=states[0],
            input_ids=ids,
            loss_mask=torch.ones_like(ids),
            verifier_last_hidden_states=states[1],
            document_ids=torch.zeros_like(ids),
            max_anchors=len(anchors),
        )
    shape = (len(anchors), model.block_size, -1)
    rows = {k: v.view(shape).contiguous() for k, v in kept.items() if v is not None}
    for name in {"confidence_logits", "prev_token_ids"} & rows.keys():
        rows[name] = rows[name].squeeze(-1).contiguous()
    return rows


def previous_tokens(draft: Draft, ids: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """The token before each slot's prediction, by the layout's rule."""
    slots = torch.arange(draft.block)
    if not draft.anchor_first:
        slots = (slots - 1).clamp(min=0)
    return ids[0, anchors[:, None] + slots]


def disagreement(draft: Draft, file: dict[str, torch.Tensor]) -> float:
    """The largest difference between the oracle and the independent decoder."""
    worst = 0.0
    for a, anchor in enumerate(file["anchors"].tolist()):
        context = draft.context(file["aux_hidden_states"][:anchor])
        hidden = draft.hidden(int(file["input_ids"][anchor]), context)
        logits = draft.logits(hidden, file["prev_token_ids"][a])
        worst = max(worst, float((logits - file["logits"][a]).abs().max()))
    return worst


def record(folder: Path, target: Path, ids: torch.Tensor, anchors: list[int], out: Path) -> float:
    """Write one oracle file and return its distance from the independent decoder."""
    draft, where = Draft(folder, target), torch.tensor(anchors)
    states = target_states(target, ids, draft.config["aux_hidden_state_layer_ids"])
    file = capture(load_draft(folder), ids, states, where)
    previous = previous_tokens(draft, ids, where)
    if not torch.equal(file.get("prev_token_ids", previous), previous):
        raise SystemExit(f"{folder}: the library conditions on other tokens than the rule says")
    file |= {
        "input_ids": ids[0].contiguous(),
        "anchors": where,
        "aux_hidden_states": states[0][0].contiguous(),
        "prev_token_ids": previous.contiguous(),
    }
    worst = disagreement(draft, file)
    if worst > TOLERANCE:
        raise SystemExit(f"{folder}: oracle and independent decoder differ by {worst}")
    out.parent.mkdir(parents=True, exist_ok=True)
    # one key only: with several, their order in the header would vary from run to run
    save_file(file, out, metadata={"meaning": json.dumps(MEANING)})
    return worst


def library(version: str) -> None:
    """Oracles of all random-weight drafts of one release."""
    os.chdir(LIBRARY)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(3, 96, (1, LIBRARY_TOKENS), generator=generator)
    for folder in sorted(p for p in Path(version).iterdir() if (p / "config.json").exists()):
        block = json.loads((folder / "config.json").read_text())["block_size"]
        anchors = [1, 7, 15, LIBRARY_TOKENS - block]
        worst = record(folder, Path("target"), ids, anchors, ORACLE / "library" / version / f"{folder.name}.safetensors")
        print(f"{folder}: {worst:.1e}", flush=True)


def trained(names: list[str]) -> None:
    """Oracles of the trained drafts, on the first held-out text window."""
    first = json.loads((TRAINED / "texts.jsonl").read_text().splitlines()[0])
    ids = torch.tensor([first["input_ids"][:TRAINED_TOKENS]])
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("target").symlink_to(TRAINED / "tiny-target")
        for name in names:
            anchors = [6, 20, 36, 47, 53]
            out = ORACLE / f"{name}.safetensors"
            worst = record(TRAINED / name, Path("target"), ids, anchors, out)
            print(f"{name}: {worst:.1e}", flush=True)


def main() -> None:
    """Dispatch to one group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", help="record the random-weight drafts of this release")
    parser.add_argument("--trained", nargs="*", default=[], help="record these trained drafts")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.version:
        library(options.version)
    if options.trained:
        trained(options.trained)


if __name__ == "__main__":
    main()
