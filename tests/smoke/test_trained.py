"""The acceptance tables of the trained fixtures, and exact output whatever the draft does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import loop
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
NAMES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated")
LIMITS = loop.Limits(64, (0,))


def flipped(spec: DraftSpec) -> DraftSpec:
    assert spec.query_slots is not None
    if spec.anchor is Anchor.SAMPLED:
        return change(spec, anchor=Anchor.BONUS, gamma=spec.query_slots - 1)
    return change(spec, anchor=Anchor.SAMPLED, gamma=spec.query_slots)


def change(spec: DraftSpec, **values: Any) -> DraftSpec:
    return spec.model_copy(update=values)


def shifted(spec: DraftSpec, by: int) -> DraftSpec:
    return change(spec, target_layer_ids=tuple(index + by for index in spec.target_layer_ids or ()))


def with_theta(spec: DraftSpec, theta: float) -> DraftSpec:
    return change(spec, rope=spec.rope.model_copy(update={"theta": theta}))


READINGS: dict[str, tuple[Callable[[DraftSpec], Reading], tuple[float | None, float | None, float | None]]] = {
    "right": (Reading, (2.57, 2.55, 2.58)),
    "anchor flipped": (lambda spec: Reading(flipped(spec)), (1.88, 1.74, 1.88)),
    "layer ids -1": (lambda spec: Reading(shifted(spec, -1)), (2.28, 2.07, 2.27)),
    "layer ids +1": (lambda spec: Reading(shifted(spec, 1)), (2.37, 2.26, 2.28)),
    "layer ids reversed": (lambda spec: Reading(change(spec, target_layer_ids=(spec.target_layer_ids or ())[::-1])), (2.19, 2.04, 2.15)),
    "mask is pad": (lambda spec: Reading(change(spec, mask_token_id=1)), (2.41, 1.79, 2.37)),
    "mask is eos": (lambda spec: Reading(change(spec, mask_token_id=0)), (1.69, 1.28, 1.61)),
    "Markov head off": (lambda spec: Reading(change(spec, markov=None)), (1.54, 1.45, 1.63)),
    "theta 1e4": (lambda spec: Reading(with_theta(spec, 1e4)), (2.32, 2.13, 2.23)),
    "causal block": (lambda spec: Reading(spec, causal_block=True), (2.50, 2.46, 2.45)),
    "block positions +1": (lambda spec: Reading(spec, block_shift=1), (2.60, 2.51, 2.51)),
    "no hidden_norm": (lambda spec: Reading(spec, hidden_norm=False), (1.85, 1.72, 1.80)),
    "input_layernorm on context": (lambda spec: Reading(spec, context_layernorm=True), (2.46, 2.29, 2.44)),
    "d2t ignored": (lambda spec: Reading(change(spec, d2t=D2T.NONE)), (None, 1.00, 1.00)),
    "d2t absolute": (lambda spec: Reading(change(spec, d2t=D2T.ABSOLUTE)), (None, 1.00, 1.00)),
    "first rows of the target's head": (lambda spec: Reading(spec, target_head_rows=True), (None, 1.07, 1.04)),
}
SLIDING = ("tiny-sliding-causal", "tiny-sliding-noncausal")
SLIDING_READINGS: dict[str, tuple[Callable[[DraftSpec], Reading], tuple[float | None, float | None]]] = {
    "right": (Reading, (2.01, 2.38)),
    "window ignored": (lambda spec: Reading(change(spec, sliding_window=10_000)), (1.66, 2.38)),
    "window halved": (lambda spec: Reading(change(spec, sliding_window=(spec.sliding_window or 0) // 2)), (1.97, 2.35)),
    "sliding causality flipped": (lambda spec: Reading(change(spec, sliding_causal=not spec.sliding_causal)), (2.02, 2.25)),
    "layer types reversed": (lambda spec: Reading(change(spec, layer_types=(spec.layer_types or ())[::-1])), (None, 2.40)),
}
CASES = [(name, reading, values[column]) for reading, (_, values) in READINGS.items() for column, name in enumerate(NAMES) if values[column] is not None]

CASES += [(name, reading, values[column]) for reading, (_, values) in SLIDING_READINGS.items() for column, name in enumerate(SLIDING) if values[column] is not None]


@pytest.mark.parametrize(("name", "reading", "expected"), CASES, ids=[f"{name}: {reading}" for name, reading, _ in CASES])
def test_acceptance_length_is_that_of_the_table(name: str, reading: str, expected: float, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    spec = pair_of(name)[0].spec
    draft, target = pair_of(name, (SLIDING_READINGS if name in SLIDING else READINGS)[reading][0](spec))
    runs = loop.generate(draft, target, [prompt.input_ids for prompt in prompts], LIMITS)
    counts = [count for run in runs for count in run.accepted]
    assert 1 + sum(counts) / len(counts) == pytest.approx(expected, abs=0.011)
    assert [tuple(run.tokens) for run in runs] == [prompt.reference_output_ids for prompt in prompts]


@pytest.mark.parametrize("name", NAMES)
def test_one_request_at_a_time_gives_the_same_tokens_and_counts(name: str, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(name)
    some = [prompt.input_ids for prompt in prompts[:4]]
    together = loop.generate(draft, target, some, LIMITS)
    assert [loop.generate(draft, target, [ids], LIMITS)[0] for ids in some] == together


def test_a_window_that_covers_the_context_changes_nothing_and_a_short_one_does(pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    spec = pair_of(NAMES[0])[0].spec
    kinds = (AttentionKind.SLIDING,) * 2
    some = [prompt.input_ids for prompt in prompts[:4]]

    def run(window: int) -> list[loop.Generation]:
        wide = change(spec, layer_types=kinds, sliding_window=window, sliding_causal=False)
        return loop.generate(*pair_of(NAMES[0], Reading(wide)), some, LIMITS)

    full = loop.generate(*pair_of(NAMES[0]), some, LIMITS)
    assert run(512) == full
    short = run(4)
    assert sum(sum(item.accepted) for item in short) < sum(sum(item.accepted) for item in full)
    assert [item.tokens for item in short] == [item.tokens for item in full]


def test_target_only_decoding_gives_the_recorded_continuations(trained_target: Target, prompts: tuple[Prompt, ...]) -> None:
    some = prompts[:5]
    assert [tuple(loop.generate_plain(trained_target, prompt.input_ids, LIMITS)) for prompt in some] == [prompt.reference_output_ids for prompt in some]
