"""Faults on the target side are defects; faults on the draft side cost acceptance and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from speculators_convert.results.smoke import Equivalence, Prompt
from speculators_convert.smoke.compare import outcome
from speculators_convert.smoke.engine import decode, loop, splits
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Step, Target, load_target
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS, judge, report
from speculators_convert.spec import D2T

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
NAME = "tiny-bonus-reduced-vanilla"
LIMITS = loop.Limits(40, (0,))


def compare(draft: Draft, target: Target, prompts: tuple[Prompt, ...], steps: loop.Steps = loop.EAGER) -> tuple[Equivalence, float]:
    """The equivalence report of a batch, and its acceptance length."""
    requests, found = [prompt.input_ids for prompt in prompts], []
    runs = loop.generate(draft, target, requests, LIMITS, steps=steps)
    for index, run in enumerate(runs):
        plain = list(prompts[index].reference_output_ids or ())[: LIMITS.max_new_tokens]
        at = outcome(index, run.tokens, run.accepted, plain).first_difference
        if at is not None:
            gaps = splits.measure(target, requests[index], plain, run, at, draft.gamma + 1)
            found.append(judge(index, at, (plain[at], run.tokens[at]), gaps, "float32"))
    counts = [count for run in runs for count in run.accepted]
    return report("eager", 1, len(requests), found, "float32"), 1 + sum(counts) / len(counts)


class LateKeys(Target):
    """KV commit: keys are read from a history that lacks the last token."""

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, cache: Any, extent: int, kept: torch.Tensor | None = None) -> Step:
        step = super().forward(ids, positions, cache, extent, kept)
        if ids.shape[1] < 20:
            for layer in cache.layers:
                layer.keys[cache.rows, positions[:, :1]] = 0
        return step


class WrongPositions(Target):
    """Verify positions: one too high (the slots are right)."""

    def _run(self, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        if ids.shape[1] == 7 and "position_ids" in arguments:
            arguments["position_ids"] = arguments["position_ids"] + torch.arange(7)
        return super()._run(ids, **arguments)


class WrongMask(Target):
    """Verify mask: each token sees the whole block."""

    def _run(self, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        if ids.shape[1] == 7 and "attention_mask" in arguments:
            arguments["attention_mask"] = {kind: mask.any(2, keepdim=True).expand_as(mask) for kind, mask in arguments["attention_mask"].items()}
        return super()._run(ids, **arguments)


def store_draft(draft: Draft, target: Target, state: decode.State, accepted: decode.Accepted, fused: torch.Tensor) -> None:
    """Ids stored after acceptance: the bonus token is stored one place late."""
    decode.commit(draft, target, state, accepted._replace(tokens=accepted.tokens.roll(1, 1)), fused)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [(LateKeys, loop.EAGER), (WrongPositions, loop.EAGER), (WrongMask, loop.EAGER), (Target, loop.Steps(commit=store_draft))],
    ids=["kv", "positions", "mask", "ids"],
)
def test_a_fault_of_the_target_side_is_a_defect(kind: type[Target], steps: loop.Steps, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(NAME)
    faulty = kind(target.model, target.taps)
    requests = [prompt.input_ids for prompt in prompts[:6]]
    runs = loop.generate(draft, faulty, requests, LIMITS, steps=steps)
    verdicts = []
    for index, run in enumerate(runs):
        plain = list(prompts[index].reference_output_ids or ())[: LIMITS.max_new_tokens]
        at = outcome(index, run.tokens, run.accepted, plain).first_difference
        if at is not None:
            gaps = splits.measure(target, requests[index], plain, run, at, draft.gamma + 1)
            verdicts.append(judge(index, at, (plain[at], run.tokens[at]), gaps, "float32").verdict)
    assert "defect" in verdicts


@pytest.mark.parametrize("change", [{"d2t": D2T.NONE}, {"markov": None}, {"target_layer_ids": (-1, 0, 1)}], ids=["mapping", "markov", "layers"])
def test_a_fault_of_the_draft_side_is_no_defect(change: dict[str, Any], pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    right, best = compare(*pair_of(NAME), prompts[:6])
    spec = pair_of(NAME)[0].spec.model_copy(update=change)
    wrong, worse = compare(*pair_of(NAME, Reading(spec)), prompts[:6])
    assert (right.exact, right.ties, right.defects) == (6, 0, 0)
    assert (wrong.exact, wrong.ties, wrong.defects) == (6, 0, 0)
    assert worse < best - 0.2


@pytest.mark.parametrize(("accepted", "at", "block"), [([2, 0, 1], 0, (-1, 0)), ([2, 0, 1], 1, (0, 0)), ([2, 0, 1], 3, (0, 2)), ([2, 0, 1], 4, (3, 0)), ([2, 0, 1], 6, (4, 1))])
def test_the_block_that_decided_a_token(accepted: list[int], at: int, block: tuple[int, int]) -> None:
    assert splits.locate(accepted, at) == block


def test_both_gaps_must_be_small_for_a_tie() -> None:
    limit = TOLERANCE_STEPS["float32"]
    near, far, ended = splits.Gaps(limit, -limit), splits.Gaps(limit, -2 * limit), splits.Gaps(float("inf"), float("inf"))
    verdicts = [judge(0, 3, (5, 6), gaps, "float32").verdict for gaps in (near, far, ended)]
    assert verdicts == ["tie", "defect", "defect"]


def test_the_gap_of_an_honest_target_is_the_same_in_both_passes(pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(NAME)
    (run,) = loop.generate(draft, target, [prompts[0].input_ids], LIMITS)
    for at in (0, 1, 7, 20):
        spoiled = loop.Generation([*run.tokens[:at], (run.tokens[at] + 1) % 1024, *run.tokens[at + 1 :]], run.accepted)
        plain, block = splits.measure(target, prompts[0].input_ids, run.tokens, spoiled, at, draft.gamma + 1)
        assert plain > 1000
        assert abs(plain - block) < TOLERANCE_STEPS["float32"]


@pytest.mark.parametrize(("kind", "honest"), [(Target, True), (WrongMask, False), (WrongPositions, False)], ids=["honest", "mask", "positions"])
def test_in_bfloat16_faults_are_defects_and_rounding_is_none(kind: type[Target], honest: bool, opened: Callable[..., Any], prompts: tuple[Prompt, ...]) -> None:
    files = opened(TRAINED / NAME)
    where = Placement(torch.bfloat16)
    target = load_target(TRAINED / "tiny-target", files.spec.target_layer_ids, where)
    draft = Draft(Reading(files.spec), read_weights(files.spec, files.source, where), target.shared)
    requests = [prompt.input_ids for prompt in prompts[:8]]
    plain = [loop.generate_plain(target, request, LIMITS) for request in requests]
    runs = loop.generate(draft, kind(target.model, target.taps), requests, LIMITS)
    verdicts = []
    for index, run in enumerate(runs):
        at = outcome(index, run.tokens, run.accepted, plain[index]).first_difference
        if at is not None:
            gaps = splits.measure(target, requests[index], plain[index], run, at, draft.gamma + 1)
            verdicts.append(judge(index, at, (plain[index][at], run.tokens[at]), gaps, "bfloat16").verdict)
    assert ("defect" not in verdicts) == honest
