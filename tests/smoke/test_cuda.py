"""The same claims on a CUDA device: captured rounds give eager's tokens, alone, in company, sampled, and over ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from speculators_convert.results.smoke import EngineRun, SmokeConfig
from speculators_convert.smoke import pair
from speculators_convert.smoke.engine import graphs, loop
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.sample import Sampler
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.smoke.reference import BACKEND
from speculators_convert.workloads.prompt_file import read_prompts

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
NAMES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal")


def on_cuda(name: str, opened: Callable[[Path], Any]) -> tuple[Draft, Target]:
    files, where = opened(TRAINED / name), Placement(torch.float32, "cuda")
    target = load_target(TRAINED / "tiny-target", files.spec.target_layer_ids, where)
    return Draft(Reading(files.spec), read_weights(files.spec, files.source, where), target.shared), target


def run(opened: Callable[[Path], Any], **values: Any) -> EngineRun:
    draft = opened(pair.DRAFT)
    config = SmokeConfig(draft="draft", target="target", device="cuda", modes=("eager", "graph"), **{"max_new_tokens": 48, "batch_size": 3, **values})
    return BACKEND.run(config, draft.spec, draft.source, pair.TARGET, read_prompts(pair.PROMPTS, pair.TARGET), lambda *_: None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_a_captured_batch_gives_eagers_tokens_and_counts(name: str, rows: int, opened: Callable[[Path], Any], prompts: Any) -> None:
    draft, target = on_cuda(name, opened)
    limits, requests = loop.Limits(40, (0,)), [prompt.input_ids[: 48 - 5 * index] for index, prompt in enumerate(prompts[:rows])]
    state = loop.empty(draft, target, rows, 160)
    steps = graphs.static(draft, target, state, loop.EAGER)
    eager = [loop.generate(draft, target, [request], limits)[0] for request in requests]
    assert loop.generate(draft, target, requests, limits, steps=steps, state=state) == eager
    assert loop.generate(draft, target, requests[:1], limits, steps=steps, state=state) == eager[:1]


def test_a_captured_sampled_batch_sees_new_numbers_in_each_round(opened: Callable[[Path], Any], prompts: Any) -> None:
    draft, target = on_cuda(NAMES[0], opened)
    limits, requests = loop.Limits(40, (0,)), [prompt.input_ids for prompt in prompts[:4]]
    eager = loop.generate(draft, target, requests, limits, steps=Sampler.seeded(0.9, range(4)).steps(draft.gamma, target.device))
    sampler = Sampler.seeded(0.9, range(4))
    state = loop.empty(draft, target, 4, 160)
    steps = graphs.static(draft, target, state, sampler.steps(draft.gamma, target.device))
    sampler.restart(range(4))
    assert loop.generate(draft, target, requests, limits, steps=steps, state=state) == eager


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_every_claim_of_a_run_holds(dtype: str, temperature: float, opened: Callable[[Path], Any]) -> None:
    result = run(opened, dtype=dtype, temperature=temperature)
    assert [item for item in result.comparisons if not item.holds and "continuations" not in item.name] == []
    assert {mode.mode for mode in result.modes} == {"eager", "graph"}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_ranks_over_nccl_give_the_tokens_of_one(opened: Callable[[Path], Any]) -> None:
    result = run(opened, tp=2)
    assert result.environment["ranks"] == "2 over nccl"
    assert [item for item in result.comparisons if not item.holds and "continuations" not in item.name] == []
