"""Hypotheses, comparison and cost: each part against what it claims."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speculators_convert.probe import hypotheses, judge, passages, score
from speculators_convert.probe.hypotheses import Question, TargetFacts, ask
from speculators_convert.probe.run import conclude, rank
from speculators_convert.results.probe import HypothesisResult
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import loop
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.sources import LocalSource
from speculators_convert.spec import Anchor
from speculators_convert.workloads.prompt_file import read_prompts

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
NAME = "tiny-bonus-reduced-vanilla"
FACTS = TargetFacts(4, 1e6, {2: "mask", 1: "pad", 0: "eos"})


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(TRAINED / "tiny-target", (0, 1, 2), Placement())


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    return read_prompts(TRAINED / "prompts.jsonl", TRAINED)


def named(question: Question) -> dict[str, Any]:
    return {item.name: item.reading for item in question.all}


def test_flipping_the_anchor_keeps_the_block_and_moves_gamma(opened: Callable[[Path], Any]) -> None:
    spec = opened(TRAINED / NAME).spec
    other = hypotheses.flip_anchor(spec)
    assert (spec.query_slots, spec.gamma, other.query_slots, other.gamma) == (7, 6, 7, 7)
    assert hypotheses.flip_anchor(other) == spec


def test_no_hypothesis_repeats_the_file_or_taps_a_layer_that_is_not_there(opened: Callable[[Path], Any]) -> None:
    spec = opened(TRAINED / NAME).spec
    readings = named(ask(spec, None, FACTS))
    assert len({repr(reading) for reading in readings.values()}) == len(readings)
    assert "theta of the target" not in readings
    assert "mask token mask" not in readings
    assert "theta of the target" in named(ask(spec, None, TargetFacts(4, 5e4, {})))
    assert "layer ids +1" not in named(ask(spec, None, TargetFacts(3, 1e6, {})))
    assert "layer ids -1" not in named(ask(hypotheses.shift_layers(spec, -1), None, FACTS))


def test_an_open_anchor_is_asked_with_the_files_block_size(opened: Callable[[Path], Any]) -> None:
    spec = opened(TRAINED / NAME).spec.model_copy(update={"anchor": None, "gamma": None, "query_slots": None})
    question = ask(spec, 7, FACTS)
    assert question.open_facts == {"anchor"}
    gammas = {(item.reading.spec.anchor, item.reading.spec.gamma) for item in question.all if item.fact in ("", "anchor")}
    assert gammas == {(Anchor.SAMPLED, 7), (Anchor.BONUS, 6)}


def test_target_passes_do_not_depend_on_the_number_of_hypotheses(opened: Callable[[Path], Any], prompts: tuple[Prompt, ...]) -> None:
    spec, counted = opened(TRAINED / NAME).spec, []
    texts = (*prompts[:2], Prompt(input_ids=prompts[2].input_ids))
    whole = ask(spec, None, FACTS)
    for question in (whole, Question(whole.stated, frozenset(), whole.others[:1])):
        target, calls = load_target(TRAINED / "tiny-target", (0, 1, 2), Placement()), []
        target.model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        ranking = rank(question, LocalSource(TRAINED / NAME), target, texts, Placement(), lambda *_: None)
        assert ranking.target_passes == len(calls)
        counted.append((ranking.target_passes, len(ranking.hypotheses)))
    assert counted[0][0] == counted[1][0]
    assert counted[0][1] > counted[1][1] + 5


@pytest.mark.parametrize("change", [{}, {"mask_token_id": 1}], ids=["right", "wrong"])
def test_a_replay_counts_what_drafted_decoding_counts(change: dict[str, Any], opened: Callable[[Path], Any], target: Target, prompts: tuple[Prompt, ...]) -> None:
    spec = opened(TRAINED / NAME).spec.model_copy(update=change)
    draft = Draft(Reading(spec), read_weights(spec, LocalSource(TRAINED / NAME), Placement()), target.shared)
    material = passages.gather(target, prompts[:4], draft.slots)
    replayed = [score.replay(draft, passage, draft.slots) for continued, _, passage in material.read(target, (0, 1, 2)) if continued]
    runs = loop.generate(draft, target, [prompt.input_ids for prompt in prompts[:4]], loop.Limits(64, (0,)))
    assert [(steps.steps, steps.tokens) for steps in replayed] == [(len(run.accepted), sum(run.accepted) + len(run.accepted)) for run in runs]


def test_a_continuation_is_the_targets_own(target: Target, prompts: tuple[Prompt, ...]) -> None:
    texts = [prompt.input_ids[: 10 * (index + 1)] for index, prompt in enumerate(prompts[:3])]
    alone = [loop.generate_plain(target, text, loop.Limits(20)) for text in texts]
    assert passages.extend(target, texts, 20) == alone


def tally(kl: list[float], steps: list[tuple[int, int]]) -> judge.Tally:
    return judge.Tally([(value, value) for value in kl], {index: score.Steps(*pair) for index, pair in enumerate(steps)})


def test_verdicts_need_both_measures_their_margins_and_their_intervals() -> None:
    stated = tally([1.0] * 8, [(20, 50)] * 8)
    lost = [(20, 40)] * 8
    assert judge.compare(tally([1.5] * 8, lost), stated).verdict == "worse"
    assert judge.compare(tally([0.5] * 8, [(20, 60)] * 8), stated).verdict == "better"
    assert judge.compare(tally([1.04] * 8, lost), stated).verdict == "tie"
    assert judge.compare(tally([1.5] * 8, [(20, 49)] * 8), stated).verdict == "tie"
    assert judge.compare(tally([0.5] * 8, lost), stated).verdict == "tie"
    mixed = [(20, 10), (20, 70)] * 3 + [(20, 10), (20, 50)]
    assert judge.compare(tally([1.5] * 8, mixed), stated).verdict == "tie"


def test_one_text_never_decides() -> None:
    assert judge.compare(tally([3.0], [(20, 20)]), tally([1.0], [(20, 60)])).verdict == "tie"


def test_the_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    source, covered = random.Random(5), 0  # noqa: S311
    for _ in range(100):
        low, high = judge.bootstrap([source.gauss(1, 1) for _ in range(20)], lambda rows: sum(rows) / len(rows))
        covered += low < 1 < high
    assert 85 <= covered <= 100


def test_a_best_reading_of_an_open_fact_is_no_contradiction(opened: Callable[[Path], Any]) -> None:
    question = ask(opened(TRAINED / NAME).spec, None, FACTS)
    numbers = {"accepted": 2, "kl": 1, "difference": 0.5, "interval": (0.4, 0.6), "kl_difference": -0.2, "kl_interval": (-0.3, -0.1)}
    results = [HypothesisResult(name=item.name, fact=item.fact, reading=item.says, verdict="best", **numbers) for item in question.all]
    assert conclude(question, results, "mask token pad")[0]
    assert not conclude(Question(question.stated, frozenset({"mask_token_id"}), question.others), results, "mask token pad")[0]
