"""One rank's run: target-only decoding, each mode of the draft, and how their outputs compare."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from speculators_convert.results.smoke import EngineRun, Equivalence, ModeResult, Prompt, Sampled, SmokeConfig
from speculators_convert.smoke import compare
from speculators_convert.smoke.compare import Drafted, Progress
from speculators_convert.smoke.engine import fit, graphs, load, loop, lossless, splits, tp
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.sample import Sampler
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.smoke.engine.vocabulary import Vocabulary, Whole
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, known

SMALL_TARGET_PARAMETERS = 50_000_000
Requests = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Rank:
    """Where this process stands: rank and number of processes, and the device it uses."""

    index: int
    world: int
    device: str


def run(config: SmokeConfig, spec: DraftSpec, source: Source, folder: Path, prompts: Sequence[Prompt], progress: Progress, rank: Rank | None = None) -> EngineRun:
    """Each mode of `config` over `prompts`, and target-only decoding once. With several ranks, each calls this and gets the same answer."""
    rank = rank or Rank(0, 1, config.device)
    where = load.placement(config.dtype, rank.device)
    progress(0, len(prompts), "loading the target")
    target = load_target(folder, known(spec.target_layer_ids, "target_layer_ids"), where)
    fit.demand_fit(spec, target)
    requests = [prompt.input_ids for prompt in prompts]
    fit.demand_prompts(requests, target, config.max_new_tokens)
    weights = load.read_weights(spec, source, where)
    draft = Draft(Reading(spec), weights, target.shared, _vocabulary(spec, rank))
    with threads(target.parameter_count() if rank.device == "cpu" else None):
        plain, seconds = plain_outputs(target, requests, config, progress)
        drafted = [drafted_outputs(draft, target, requests, config, mode, progress) for mode in config.modes]
        single = []
        if rank.world > 1:
            alone = config.model_copy(update={"tp": 1})
            single = [drafted_outputs(Draft(Reading(spec), weights, target.shared), target, requests, alone, config.modes[0], progress)]
        modes = tuple(item.against(plain, seconds) for item in drafted)
        equivalence, sampled = tuple[Equivalence, ...](), tuple[Sampled, ...]()
        if config.temperature:
            sampled = tuple(_distribution(target, requests, item, config) for item in drafted)
        else:
            equivalence = tuple(_explain(target, requests, plain, item, result) for item, result in zip(drafted, modes, strict=True))
    progress(len(requests), len(requests), "done")
    comparisons = (
        *(compare.equal_to_plain(item) for item in equivalence),
        *(compare.lossless(item) for item in sampled),
        *compare.equal_to_each_other([*single, *drafted], equivalence),
        *compare.equal_to_recorded(plain, prompts),
    )
    return EngineRun(modes=modes, environment=environment(config, rank), comparisons=comparisons, equivalence=equivalence, sampled=sampled)


def environment(config: SmokeConfig, rank: Rank) -> dict[str, str]:
    """Versions and device of a run."""
    cuda = rank.device != "cpu"
    found = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device": f"{config.device} ({torch.cuda.get_device_name(rank.device) if cuda else platform.machine()})",
        "dtype": config.dtype,
    }
    return {**found, "ranks": f"{rank.world} over {'nccl' if cuda else 'gloo'}"} if rank.world > 1 else found


def _vocabulary(spec: DraftSpec, rank: Rank) -> Vocabulary:
    return tp.Sharded(rank.index, rank.world, known(spec.draft_vocab_size, "draft_vocab_size")) if rank.world > 1 else Whole()


def plain_outputs(target: Target, requests: Requests, config: SmokeConfig, progress: Progress) -> tuple[list[list[int]], float]:
    """Target-only greedy tokens of each request, and the seconds that they took."""
    began, limits, outputs = time.perf_counter(), loop.Limits(config.max_new_tokens, target.stop_ids()), []
    for done, request in enumerate(requests):
        progress(done, len(requests), "target only")
        outputs.append(loop.generate_plain(target, request, limits))
    return outputs, time.perf_counter() - began


def drafted_outputs(draft: Draft, target: Target, requests: Requests, config: SmokeConfig, mode: str, progress: Progress) -> Drafted:
    """One mode over all requests, `batch_size` at a time. The clock starts after a capture, as in a server."""
    limits, runs = loop.Limits(config.max_new_tokens, target.stop_ids()), list[loop.Generation]()
    width = min(config.batch_size, len(requests)) if target.ragged else 1
    sampler = Sampler.seeded(config.temperature, [config.seed] * width) if config.temperature else None
    steps = tp.in_step(sampler.steps(draft.gamma, target.device) if sampler else loop.EAGER, draft.vocabulary)
    state = None
    if mode == "graph":
        state = loop.empty(draft, target, width, max(len(request) for request in requests) + loop.room(draft, limits))
        steps = graphs.static(draft, target, state, steps)
    began = time.perf_counter()
    for first in range(0, len(requests), width):
        batch = requests[first : first + width]

        def watch(done: int, first: int = first) -> None:
            progress(first + done, len(requests), mode)

        if sampler:
            rows = width if state is not None else len(batch)
            sampler.restart([config.seed + first + row for row in range(rows)])
            if state is None and rows != width:
                steps = tp.in_step(sampler.steps(draft.gamma, target.device), draft.vocabulary)
        runs += loop.generate(draft, target, batch, limits, watch, steps, state)
    took = time.perf_counter() - began
    tokens, accepted = tuple(tuple(run.tokens) for run in runs), tuple(tuple(run.accepted) for run in runs)
    return Drafted(mode, config.tp, config.temperature, config.dtype, draft.gamma, tokens, accepted, took)


def _explain(target: Target, requests: Requests, plain: Sequence[list[int]], drafted: Drafted, result: ModeResult) -> Equivalence:
    found = []
    for item in result.outcomes:
        if item.first_difference is None:
            continue
        index, at = item.prompt, item.first_difference
        left, right = plain[index], drafted.tokens[index]
        gaps = splits.measure(target, requests[index], left, loop.Generation(list(right), list(drafted.accepted[index])), at, drafted.gamma + 1)
        found.append(compare.judge(index, at, (left[at] if at < len(left) else None, right[at] if at < len(right) else None), gaps, drafted.dtype))
    return compare.report(drafted.mode, drafted.tp, result.total, found, drafted.dtype)


def _distribution(target: Target, requests: Requests, drafted: Drafted, config: SmokeConfig) -> Sampled:
    generator = torch.Generator().manual_seed(config.seed)
    values = [place for request, output in zip(requests, drafted.tokens, strict=True) for place in lossless.places(target, request, output, config.temperature, generator)]
    return Sampled(
        mode=drafted.mode,
        tp=drafted.tp,
        temperature=config.temperature,
        seed=config.seed,
        tokens=len(values),
        p_value=lossless.p_value(values),
        level=lossless.LEVEL,
    )


@contextmanager
def threads(parameters: int | None) -> Iterator[None]:
    """One thread while a small target runs on the CPU: its kernels are too short to share, and waiting threads cost far more."""
    before = torch.get_num_threads()
    try:
        if parameters is not None and parameters < SMALL_TARGET_PARAMETERS:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
