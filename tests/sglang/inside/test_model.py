"""The real model classes against what the speculators package's own model computed (`fixtures/oracle`), in float32."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sglang_harness.draft import block_hidden, load_draft
from sglang_harness.environment import LIBRARY, ROOT, TRAINED

from speculators_convert.sglang_plugin.markov import advance

pytestmark = pytest.mark.usefixtures("world")
TOLERANCE = 1e-4
REFUSED = {"no-markov", "no-markov-no-confidence", "taps-edge"}


@dataclass(frozen=True)
class Case:
    """A draft, what the library computed for it, and its target."""

    folder: Path
    oracle: Path
    target: Path

    def __str__(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"


CASES = [
    *(
        Case(LIBRARY / path.parent.name / path.stem, path, LIBRARY / "target")
        for path in sorted((ROOT / "fixtures/oracle/library").glob("*/*.safetensors"))
        if path.stem not in REFUSED
    ),
    *(Case(TRAINED / path.stem, path, TRAINED / "tiny-target") for path in sorted((ROOT / "fixtures/oracle").glob("*.safetensors"))),
]


@pytest.fixture(params=CASES, ids=str, scope="module")
def case(request):
    return request.param


@pytest.fixture(scope="module")
def model(case, world):
    return load_draft(case.folder, case.target)


@pytest.fixture(scope="module")
def oracle(case):
    return load_file(case.oracle)


def test_states_of_a_block(model, oracle):
    for row, anchor in enumerate(oracle["anchors"].tolist()):
        context = oracle["aux_hidden_states"][:anchor]
        hidden = block_hidden(model, context, int(oracle["input_ids"][anchor]), anchor, int(model.config.mask_token_id))
        torch.testing.assert_close(hidden, oracle["hidden"][row], atol=TOLERANCE, rtol=TOLERANCE)


@torch.no_grad()
def test_logits_and_confidence_with_the_real_previous_tokens(model, oracle):
    hidden, previous = oracle["hidden"], oracle["prev_token_ids"]
    blocks, slots, width = hidden.shape
    base, _ = model.compute_base_logits(hidden.reshape(-1, width))
    base = base.view(blocks, slots, -1)
    head, first = model.markov_head, 0 if model.sample_from_anchor else 1
    state = head.init_state(hidden[:, first:])
    if getattr(head, "starts_at_anchor", False):
        state = advance(head, previous[:, 0], hidden[:, 0], state)
    for slot in range(first, slots):
        bias, state = head.step_bias(previous[:, slot], hidden_states=hidden[:, slot], state=state)
        torch.testing.assert_close(base[:, slot] + bias, oracle["logits"][:, slot], atol=TOLERANCE, rtol=TOLERANCE)
    if "confidence_logits" in oracle:
        _, raw = model.compute_confidence(anchor_tokens=previous[:, first], draft_tokens=_after(previous[:, first:]), confidence_features=hidden[:, first:].reshape(-1, width))
        torch.testing.assert_close(raw, oracle["confidence_logits"][:, first:], atol=TOLERANCE, rtol=TOLERANCE)


def _after(previous):
    """Draft tokens [B, gamma] whose predecessors are `previous` [B, gamma]; the last has no successor to matter for."""
    return torch.cat((previous[:, 1:], previous[:, -1:]), 1)
