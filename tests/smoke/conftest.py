"""Drafts and targets for the engine's tests, opened from the repository's fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from speculators_convert.checkpoint import collect
from speculators_convert.formats import detect
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.sources import LocalSource, Source
from speculators_convert.spec import DraftSpec, Settings, known
from speculators_convert.workloads.prompt_file import read_prompts

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRAINED = FIXTURES / "trained"


@dataclass(frozen=True)
class Opened:
    """A draft folder: its normal form and its bytes."""

    folder: Path
    spec: DraftSpec
    source: Source


def open_draft(folder: Path) -> Opened:
    """The draft in `folder`, read by the format that recognises it."""
    source = LocalSource(folder)
    checkpoint = collect(source)
    recognised = detect(checkpoint).format
    assert recognised is not None
    return Opened(folder, recognised.read(checkpoint, Settings()).spec, source)


def build(opened: Opened, target: Target, reading: Reading | None = None) -> Draft:
    """The draft over the target's embedding and head."""
    return Draft(reading or Reading(opened.spec), read_weights(opened.spec, opened.source, Placement()), target.shared)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def opened() -> Callable[[Path], Opened]:
    """Open a draft folder."""
    return open_draft


@pytest.fixture(scope="session")
def trained_target() -> Target:
    """The trained target in float32 without taps."""
    return load_target(TRAINED / "tiny-target", (), Placement())


@pytest.fixture(scope="session")
def prompts() -> tuple[Prompt, ...]:
    """The 20 held-out prompts with the target's own continuations."""
    return read_prompts(TRAINED / "prompts.jsonl", TRAINED / "tiny-target")


@pytest.fixture(scope="session")
def pair_of(trained_target: Target) -> Callable[[str, Reading | None], tuple[Draft, Target]]:
    """A trained draft, read as told, and the target with the taps of that reading."""

    def make(name: str, reading: Reading | None = None) -> tuple[Draft, Target]:
        draft = open_draft(TRAINED / name)
        reading = reading or Reading(draft.spec)
        return build(draft, trained_target, reading), Target(trained_target.model, known(reading.spec.target_layer_ids, "target_layer_ids"))

    return make


def acceptance(runs: Sequence[Sequence[int]]) -> float:
    """Accepted plus bonus tokens over verify steps, from the accepted counts of each prompt."""
    counts = [count for run in runs for count in run]
    return 1 + sum(counts) / len(counts)
