"""Modes, degrees and sampling of a run through the back end: the same tokens, and claims that can fail."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import EngineRun, Prompt, SmokeConfig
from speculators_convert.smoke import compare, pair
from speculators_convert.smoke.compare import Drafted
from speculators_convert.smoke.engine import graphs, loop, lossless, tp
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.sample import Sampler
from speculators_convert.smoke.engine.target import Target
from speculators_convert.smoke.reference import BACKEND
from speculators_convert.sources import MemorySource
from speculators_convert.workloads.prompt_file import read_prompts

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
LIMITS = loop.Limits(24, (0,))
NAMES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-sliding-noncausal")


def uneven(prompts: tuple[Prompt, ...], count: int = 5) -> list[tuple[int, ...]]:
    return [prompt.input_ids[: 48 - 7 * index] for index, prompt in enumerate(prompts[:count])]


def run(opened: Callable[[Path], Any], name: str = "", prompts: tuple[Prompt, ...] = (), **values: Any) -> EngineRun:
    draft = opened(TRAINED / name if name else pair.DRAFT)
    config = SmokeConfig(draft="draft", target="target", **{"max_new_tokens": 16, "batch_size": 3, **values})
    return BACKEND.run(config, draft.spec, draft.source, TRAINED / "tiny-target" if name else pair.TARGET, prompts or read_prompts(pair.PROMPTS, pair.TARGET), lambda *_: None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [5, 8])
def test_fixed_shapes_and_spare_rows_never_change_a_token(name: str, rows: int, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(name)
    requests = uneven(prompts)
    state = loop.empty(draft, target, rows, 160)
    steps = graphs.static(draft, target, state, loop.EAGER)
    alone = [loop.generate(draft, target, [request], LIMITS)[0] for request in requests]
    assert loop.generate(draft, target, requests, LIMITS, steps=steps, state=state) == alone
    assert loop.generate(draft, target, requests[::-1][:2], LIMITS, steps=steps, state=state) == alone[::-1][:2]


def test_a_fixed_batch_reads_all_its_slots_and_an_eager_one_only_what_it_needs(pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(NAMES[0])
    seen: list[int] = []

    def verify(target: Target, state: Any, tokens: torch.Tensor, extent: int) -> Any:
        seen.append(extent)
        return loop.EAGER.verify(target, state, tokens, extent)

    watched = loop.Steps(verify=verify)
    state = loop.empty(draft, target, 2, 160)
    loop.generate(draft, target, uneven(prompts, 2), LIMITS, steps=graphs.static(draft, target, state, watched), state=state)
    assert set(seen) == {160}
    seen.clear()
    loop.generate(draft, target, uneven(prompts, 2), LIMITS, steps=watched)
    assert len(set(seen)) > 3


def test_modes_are_compared_with_target_only_output_and_with_each_other(opened: Callable[[Path], Any]) -> None:
    result = run(opened, modes=("eager", "graph"))
    assert [mode.mode for mode in result.modes] == ["eager", "graph"]
    assert result.modes[0].outcomes == result.modes[1].outcomes
    claim = next(item for item in result.comparisons if item.name == "graph tp 1: tokens equal those of eager tp 1")
    assert claim.holds
    assert claim.measured.startswith("8 of 8 prompts equal, 0 ties")


def drafted(mode: str, tokens: tuple[int, ...], **values: Any) -> Drafted:
    return Drafted(**{"mode": mode, "tp": 1, "temperature": 0.0, "dtype": "float32", "gamma": 4, "tokens": (tokens,), "accepted": ((1,),), "seconds": 1.0, **values})


def test_modes_that_differ_fail_unless_the_target_itself_was_undecided() -> None:
    runs = [drafted("eager", (1, 2)), drafted("graph", (1, 3))]
    assert [item.holds for item in compare.equal_to_each_other(runs, ())] == [False]
    sampled = [drafted("eager", (1, 2), temperature=1.0, dtype="bfloat16"), drafted("graph", (1, 3), temperature=1.0, dtype="bfloat16")]
    assert compare.equal_to_each_other(sampled, ()) == ()


def test_a_sampled_run_states_its_test_and_gives_the_same_tokens_in_both_modes(opened: Callable[[Path], Any]) -> None:
    result = run(opened, modes=("eager", "graph"), temperature=0.9, seed=4, max_new_tokens=32)
    assert result.equivalence == ()
    tokens = sum(item.output_tokens for item in result.modes[0].outcomes)
    assert tokens > 200
    assert [(item.mode, item.tokens, item.level) for item in result.sampled] == [("eager", tokens, 0.001), ("graph", tokens, 0.001)]
    assert all(item.holds for item in result.comparisons)
    assert all(mode.temperature == 0.9 for mode in result.modes)
    again, other = (run(opened, temperature=0.9, seed=seed, max_new_tokens=32) for seed in (4, 5))
    assert again.modes[0].outcomes == result.modes[0].outcomes
    assert other.modes[0].outcomes != result.modes[0].outcomes


@pytest.mark.parametrize(("temperature", "holds"), [(0.8, True), (0.4, False)])
def test_the_distribution_test_sees_output_of_another_temperature(
    temperature: float, holds: bool, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]
) -> None:
    draft, target = pair_of(NAMES[0])
    requests = [prompt.input_ids for prompt in prompts[:8]]
    runs = loop.generate(draft, target, requests, loop.Limits(32), steps=Sampler.seeded(temperature, range(8)).steps(draft.gamma))
    generator = torch.Generator().manual_seed(1)
    values = [place for request, item in zip(requests, runs, strict=True) for place in lossless.places(target, request, item.tokens, 0.8, generator)]
    assert (lossless.p_value(values) >= lossless.LEVEL) == holds


def test_the_p_value_is_uniform_for_uniform_places_and_small_for_others() -> None:
    source = random.Random(3)  # noqa: S311
    found = [lossless.p_value([source.random() for _ in range(200)]) for _ in range(400)]
    assert 0.02 < sum(value < 0.05 for value in found) / 400 < 0.09
    assert lossless.p_value([source.random() ** 2 for _ in range(200)]) < 1e-6
    assert lossless.p_value([(index + 0.5) / 200 for index in range(200)]) == 1.0


@pytest.mark.parametrize(("rows", "world"), [(32_000, 3), (7, 4), (8, 2)])
def test_slices_cover_the_vocabulary_once_and_padding_is_zero(rows: int, world: int) -> None:
    weight = torch.arange(1, rows + 1, dtype=torch.float32)[:, None]
    parts = [tp.Sharded(rank, world, rows).slice(weight) for rank in range(world)]
    assert len({part.shape for part in parts}) == 1
    whole = torch.cat(parts)
    assert torch.equal(whole[:rows], weight)
    assert (whole[rows:] == 0).all()


@pytest.mark.parametrize(("degree", "name"), [(2, "tiny-bonus-reduced-vanilla"), (4, "tiny-anchor-reduced-gated"), (3, "")])
def test_ranks_give_the_tokens_of_one_rank(degree: int, name: str, opened: Callable[[Path], Any], prompts: tuple[Prompt, ...]) -> None:
    values = {"name": name, "prompts": prompts[:4] if name else ()}
    one = run(opened, **values)
    many = run(opened, tp=degree, modes=("eager", "graph"), **values)
    assert many.environment["ranks"] == f"{degree} over gloo"
    for mode in many.modes:
        assert mode.tp == degree
        assert mode.outcomes == one.modes[0].outcomes
    claims = [item for item in many.comparisons if f"tp {degree}: tokens equal those of eager tp 1" in item.name]
    assert len(claims) == 2
    assert all(item.holds for item in many.comparisons)


def test_an_error_of_a_rank_is_the_error_of_the_run(opened: Callable[[Path], Any]) -> None:
    with pytest.raises(SmokeError, match="longer than the target's positions") as caught:
        run(opened, tp=2, max_new_tokens=500)
    assert (caught.value.where, caught.value.hint) == ("prompt 1", "use shorter prompts or a smaller --max-new-tokens")


def test_ranks_that_take_too_long_are_ended(opened: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SmokeError, match="took too long") as caught:
        run(opened, tp=2, timeout_seconds=6.0)
    assert caught.value.expected == "an answer"
    deadline = time.monotonic() + 30
    while (left := processes_about(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert list(tmp_path.iterdir()) == []


def processes_about(folder: Path) -> list[list[str]]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [process.cmdline()] if any(str(folder) in part for part in process.cmdline()) else []
    return found


def test_ranks_need_a_draft_that_each_can_open(opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    config = SmokeConfig(draft="draft", target="target", tp=2)
    with pytest.raises(SmokeError, match="the ranks cannot open this draft"):
        BACKEND.run(config, draft.spec, MemorySource({}), pair.TARGET, (Prompt(input_ids=(5, 6)),), lambda *_: None)
