"""Per-slot draft logits equal those of the speculators library's own model (recorded in `fixtures/oracle`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from speculators_convert.smoke.engine import decode
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.spec import AttentionKind, known

FIXTURES = Path(__file__).parents[2] / "fixtures"
ORACLE = FIXTURES / "oracle"
FILES = sorted(ORACLE.rglob("*.safetensors"))
FOLDERS = {file: FIXTURES / "trained" / file.stem if file.parent == ORACLE else FIXTURES / file.relative_to(ORACLE).with_suffix("") for file in FILES}
IDS = ["/".join(FOLDERS[file].parts[-2:]) for file in FILES]
TOLERANCE = {"atol": 5e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {kind: load_target(FIXTURES / kind, (), Placement()) for kind in ("library/target", "trained/tiny-target")}


def block_states(draft: Draft, oracle: dict[str, torch.Tensor]) -> torch.Tensor:
    """Hidden states [anchors, slots, H]: one row per anchor, all rows over the same context, each masked to its own past."""
    anchors, states = oracle["anchors"], oracle["aux_hidden_states"]
    rows, length = len(anchors), len(states)
    cache = draft.cache(rows, length)
    draft.append(cache, states.expand(rows, length, -1), torch.arange(length).expand(rows, length))
    return draft.hidden(oracle["input_ids"][anchors], anchors, cache, length)


def run(file: Path, opened: Callable[[Path], Any], targets: dict[str, Target], **departures: Any) -> tuple[Draft, dict[str, torch.Tensor], torch.Tensor]:
    pair, oracle = opened(FOLDERS[file]), load_file(file)
    target = targets["library/target" if "library" in file.parts else "trained/tiny-target"]
    draft = Draft(Reading(pair.spec, **departures), read_weights(pair.spec, pair.source, Placement()), target.shared)
    return draft, oracle, block_states(draft, oracle)


def test_there_are_oracles_for_each_head_layout_vocabulary_and_attention() -> None:
    names = {FOLDERS[file].name for file in FILES}
    heads = {f"{head}-{layout}-{vocabulary}" for head in ("vanilla", "gated", "rnn") for layout in ("anchor", "bonus") for vocabulary in ("full", "reduced")}
    assert names >= heads | {"sliding-causal", "sliding-noncausal", "mixed-causal", "no-markov"}


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_logits_equal_the_library(file: Path, opened: Callable[[Path], Any], targets: dict[str, Target]) -> None:
    draft, oracle, hidden = run(file, opened, targets)
    torch.testing.assert_close(hidden, oracle["hidden"], **TOLERANCE)
    torch.testing.assert_close(decode.score(draft, hidden, oracle["prev_token_ids"]), oracle["logits"], **TOLERANCE)
    assert (draft.confidence is not None) == ("confidence_logits" in oracle)
    if draft.confidence is not None:
        torch.testing.assert_close(draft.confidence.logit(hidden, oracle["prev_token_ids"]), oracle["confidence_logits"], **TOLERANCE)


@pytest.mark.parametrize("file", [file for file in FILES if "sliding-causal" in str(file)], ids=str)
def test_in_block_causality_is_part_of_the_answer(file: Path, opened: Callable[[Path], Any], targets: dict[str, Target]) -> None:
    _, oracle, hidden = run(file, opened, targets, causal_block=False)
    difference = (hidden - oracle["hidden"]).abs().amax((0, 2))
    assert (difference > 1e-3).all()


@pytest.mark.parametrize("file", [file for file in FILES if "sliding" in FOLDERS[file].name or "mixed" in FOLDERS[file].name], ids=str)
def test_a_sliding_layer_reads_exactly_its_window(file: Path, opened: Callable[[Path], Any], targets: dict[str, Target]) -> None:
    draft, oracle, _ = run(file, opened, targets)
    layer = known(draft.spec.layer_types, "layer_types").index(AttentionKind.SLIDING)
    window = known(draft.spec.sliding_window, "sliding_window")
    anchor, length = int(oracle["anchors"][-1]), len(oracle["aux_hidden_states"])
    assert anchor > window
    clean = last_states(draft, oracle, None, layer)
    assert torch.equal(last_states(draft, oracle, anchor - window - 1, layer), clean)
    assert not torch.equal(last_states(draft, oracle, anchor - window, layer), clean)
    assert torch.equal(last_states(draft, oracle, min(anchor, length - 1), layer), clean)


def last_states(draft: Draft, oracle: dict[str, torch.Tensor], spoiled: int | None, layer: int) -> torch.Tensor:
    """States of the last anchor's block with one context position of one layer replaced by noise."""
    states, anchor = oracle["aux_hidden_states"], oracle["anchors"][-1:]
    cache = draft.cache(1, len(states))
    draft.append(cache, states[None], torch.arange(len(states))[None])
    if spoiled is not None:
        cache[layer].keys[:, spoiled] += 3.0
        cache[layer].values[:, spoiled] += 3.0
    return draft.hidden(oracle["input_ids"][anchor], anchor, cache, len(states))
