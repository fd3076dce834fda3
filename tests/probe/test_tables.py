"""The tables of fixtures/README.md: the right reading beats each that drops by more than 0.1 tokens and 0.05 nats; all others are ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from speculators_convert.probe.hypotheses import STATED, Hypothesis, Question, describe, flip_anchor, shift_layers
from speculators_convert.probe.run import Ranking, rank
from speculators_convert.smoke.engine.load import Placement
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import load_target
from speculators_convert.sources import LocalSource
from speculators_convert.spec import D2T, AttentionKind, DraftSpec, MarkovKind
from speculators_convert.workloads.prompt_file import read_prompts

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
Change = Callable[[DraftSpec], Reading]


def with_(**values: Any) -> Change:
    return lambda spec: Reading(spec.model_copy(update=values))


def theta(value: float) -> Change:
    return lambda spec: Reading(spec.model_copy(update={"rope": spec.rope.model_copy(update={"theta": value})}))


def window(scale: float, more: int = 0) -> Change:
    return lambda spec: Reading(spec.model_copy(update={"sliding_window": int((spec.sliding_window or 0) * scale) + more}))


def departs(**values: Any) -> Change:
    return lambda spec: replace(Reading(spec), **values)


def as_vanilla(spec: DraftSpec) -> Reading:
    assert spec.markov
    return Reading(spec.model_copy(update={"markov": spec.markov.model_copy(update={"kind": MarkovKind.VANILLA})}))


READINGS: dict[str, Change] = {
    "right": Reading,
    "anchor flipped": lambda spec: Reading(flip_anchor(spec)),
    "taps one lower": lambda spec: Reading(shift_layers(spec, -1)),
    "taps one higher": lambda spec: Reading(shift_layers(spec, 1)),
    "taps reversed": lambda spec: Reading(spec.model_copy(update={"target_layer_ids": (spec.target_layer_ids or ())[::-1]})),
    "mask pad": with_(mask_token_id=1),
    "mask eos": with_(mask_token_id=0),
    "mask ordinary": with_(mask_token_id=500),
    "Markov off": with_(markov=None),
    "theta 1e4": theta(1e4),
    "theta 5e5": theta(5e5),
    "theta 5e6": theta(5e6),
    "causal block": departs(causal_block=True),
    "positions +1": departs(block_shift=1),
    "positions -1": departs(block_shift=-1),
    "no hidden_norm": departs(hidden_norm=False),
    "layernorm on context": departs(context_layernorm=True),
    "d2t ignored": with_(d2t=D2T.NONE),
    "d2t absolute": with_(d2t=D2T.ABSOLUTE),
    "target's first rows": departs(target_head_rows=True),
    "as vanilla": as_vanilla,
    "window x 1/4": window(1 / 4),
    "window x 1/2": window(1 / 2),
    "window + 1": window(1, 1),
    "window x 2": window(2),
    "window ignored": window(1000),
    "sliding causality flipped": lambda spec: Reading(spec.model_copy(update={"sliding_causal": not spec.sliding_causal})),
    "layer types reversed": lambda spec: Reading(spec.model_copy(update={"layer_types": (spec.layer_types or ())[::-1]})),
    "all layers full": with_(layer_types=(AttentionKind.FULL,) * 2),
}
FULL, BONUS, GATED, SLIDING, MIXED = "tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal"
ROWS: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {  # acceptance length and KL, as the README prints them
    "right": ((FULL, BONUS, GATED), ("2.57 0.64", "2.55 0.82", "2.58 0.59")),
    "anchor flipped": ((FULL, BONUS, GATED), ("1.88 1.61", "1.74 1.56", "1.88 1.49")),
    "taps one lower": ((FULL, BONUS, GATED), ("2.28 0.84", "2.07 1.00", "2.27 0.79")),
    "taps one higher": ((FULL, BONUS, GATED), ("2.37 0.79", "2.26 0.99", "2.28 0.75")),
    "taps reversed": ((FULL, BONUS, GATED), ("2.19 0.84", "2.04 1.04", "2.15 0.82")),
    "mask pad": ((FULL, BONUS, GATED), ("2.41 0.76", "1.79 1.48", "2.37 0.75")),
    "mask eos": ((FULL, BONUS, GATED), ("1.69 1.25", "1.28 2.43", "1.61 1.34")),
    "mask ordinary": ((FULL, BONUS, GATED), ("2.16 0.76", "1.20 3.34", "2.13 0.75")),
    "Markov off": ((FULL, BONUS, GATED), ("1.54 1.47", "1.45 1.96", "1.63 1.20")),
    "theta 1e4": ((FULL, BONUS, GATED), ("2.32 0.84", "2.13 1.02", "2.23 0.78")),
    "theta 5e5": ((FULL, BONUS, GATED), ("2.56 0.65", "2.56 0.83", "2.58 0.60")),
    "theta 5e6": ((FULL, BONUS, GATED), ("2.58 0.64", "2.42 0.83", "2.52 0.59")),
    "causal block": ((FULL, BONUS, GATED), ("2.50 0.81", "2.46 0.86", "2.45 0.80")),
    "positions +1": ((FULL, BONUS, GATED), ("2.60 0.69", "2.51 0.86", "2.51 0.64")),
    "positions -1": ((FULL, BONUS, GATED), ("2.50 0.70", "2.43 0.86", "2.50 0.64")),
    "no hidden_norm": ((FULL, BONUS, GATED), ("1.85 1.70", "1.72 1.74", "1.80 1.65")),
    "layernorm on context": ((FULL, BONUS, GATED), ("2.46 0.70", "2.29 0.97", "2.44 0.65")),
    "d2t ignored": ((FULL, BONUS, GATED), ("", "1.00 7.82", "1.00 7.91")),
    "d2t absolute": ((FULL, BONUS, GATED), ("", "1.00 7.85", "1.00 7.86")),
    "target's first rows": ((FULL, BONUS, GATED), ("", "1.07 7.72", "1.04 8.35")),
    "as vanilla": ((FULL, BONUS, GATED), ("", "", "2.49 0.76")),
}
SLIDING_ROWS: dict[str, tuple[str, str]] = {
    "right": ("2.01 0.96", "2.38 0.71"),
    "window x 1/4": ("1.94 1.05", "2.33 0.73"),
    "window x 1/2": ("1.97 1.01", "2.35 0.72"),
    "window + 1": ("2.00 0.96", ""),
    "window x 2": ("1.91 1.00", "2.37 0.71"),
    "window ignored": ("1.66 1.14", "2.38 0.71"),
    "sliding causality flipped": ("2.02 0.96", "2.25 0.78"),
    "layer types reversed": ("", "2.40 0.89"),
    "all layers full": ("1.66 1.14", "2.38 0.71"),
    "anchor flipped": ("1.69 1.52", "1.74 1.34"),
    "Markov off": ("1.31 2.10", "1.44 1.82"),
    "as vanilla": ("", "2.39 0.74"),
}


@dataclass(frozen=True)
class Printed:
    """One cell of the table, in hundredths."""

    accepted: int
    kl: int


def table(name: str) -> dict[str, Printed]:
    cells = {reading: texts[names.index(name)] for reading, (names, texts) in ROWS.items() if name in names}
    cells |= {reading: texts[(SLIDING, MIXED).index(name)] for reading, texts in SLIDING_ROWS.items() if name in (SLIDING, MIXED)}
    return {reading: Printed(*(round(float(number) * 100) for number in text.split())) for reading, text in cells.items() if text}


def must_lose(right: Printed, other: Printed) -> bool:
    return right.accepted - other.accepted > 10 and other.kl - right.kl >= 5


def measure(name: str, opened: Callable[[Path], Any]) -> Ranking:
    draft, readings = opened(TRAINED / name), [reading for reading in table(name) if reading != "right"]
    others = tuple(Hypothesis(reading, "table", reading, READINGS[reading](draft.spec)) for reading in readings)
    question = Question(Hypothesis(STATED, "", describe(draft.spec), Reading(draft.spec)), frozenset(), others)
    prompts = (*read_prompts(TRAINED / "prompts.jsonl", TRAINED), *read_prompts(TRAINED / "texts.jsonl", TRAINED))
    target = load_target(TRAINED / "tiny-target", draft.spec.target_layer_ids, Placement())
    return rank(question, LocalSource(draft.folder), target, prompts, Placement(), lambda *_: None)


@pytest.mark.parametrize("name", [FULL, BONUS, GATED, SLIDING, MIXED])
def test_the_right_reading_wins_where_the_table_says_so_and_ties_everywhere_else(name: str, opened: Callable[[Path], Any]) -> None:
    printed, ranking = table(name), measure(name, opened)
    measured = {item.name: item for item in ranking.hypotheses}
    assert ranking.best == STATED
    assert not ranking.contradicts
    assert {reading: measured[reading].verdict for reading in printed if reading != "right"} == {
        reading: "worse" if must_lose(printed["right"], cell) else "tie" for reading, cell in printed.items() if reading != "right"
    }
    for reading, cell in printed.items():
        item = measured[STATED if reading == "right" else reading]
        assert item.accepted == pytest.approx(cell.accepted / 100, abs=0.011)
        assert item.kl == pytest.approx(cell.kl / 100, abs=0.04)


def test_the_tables_have_wins_ties_and_a_wrong_reading_that_accepts_more() -> None:
    full = table(FULL)
    lost = [reading for reading, cell in full.items() if must_lose(full["right"], cell)]
    assert 8 < len(lost) < len(full) - 3
    assert max(full, key=lambda reading: full[reading].accepted) == "positions +1"
