"""The reference engine beside the servers: same prompts, same weights; it also judges where outputs part and whether samples follow the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from speculators_convert.results.smoke import ModeResult, Prompt, Sampled, SmokeConfig
from speculators_convert.smoke.compare import Drafted, Progress
from speculators_convert.smoke.engine import fit, load, lossless, session
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.smoke.engine.vocabulary import Whole
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, known


@dataclass(frozen=True, slots=True)
class Beside:
    """What the reference engine measured, and the target that it loaded for further questions."""

    target: Target
    requests: tuple[tuple[int, ...], ...]
    plain: tuple[tuple[int, ...], ...]
    drafted: Drafted
    result: ModeResult
    environment: dict[str, str]


def measure(config: SmokeConfig, spec: DraftSpec, source: Source, folder: Path, prompts: Sequence[Prompt], progress: Progress) -> Beside:
    """Target-only and drafted greedy decoding of `prompts`; `SmokeError` when the engine cannot load draft or target."""
    where = load.placement(config.dtype, config.device)
    progress(0, len(prompts), "loading the target")
    target = load_target(folder, known(spec.target_layer_ids, "target_layer_ids"), where)
    fit.demand_fit(spec, target)
    requests = tuple(prompt.input_ids for prompt in prompts)
    fit.demand_prompts(requests, target, config.max_new_tokens)
    draft = Draft(Reading(spec), load.read_weights(spec, source, where), target.shared, Whole())
    alone = config.model_copy(update={"tp": 1, "temperature": 0.0})
    with session.threads(target.parameter_count() if config.device == "cpu" else None):
        plain, seconds = session.plain_outputs(target, requests, alone, progress)
        drafted = session.drafted_outputs(draft, target, requests, alone, "eager", progress)
    environment = session.environment(alone, session.Rank(0, 1, config.device))
    return Beside(target, requests, tuple(tuple(tokens) for tokens in plain), drafted, drafted.against(plain, seconds), environment)


def distribution(beside: Beside, drafted: Drafted, config: SmokeConfig) -> Sampled:
    """Do the sampled tokens of a server follow the target's distribution?"""
    generator = torch.Generator().manual_seed(config.seed)
    places = [
        place
        for request, output in zip(beside.requests, drafted.tokens, strict=True)
        if output
        for place in lossless.places(beside.target, request, output, drafted.temperature, generator)
    ]
    return Sampled(
        mode=drafted.mode,
        tp=drafted.tp,
        concurrency=drafted.concurrency,
        temperature=drafted.temperature,
        seed=config.seed,
        tokens=len(places),
        p_value=lossless.p_value(places),
        level=lossless.LEVEL,
    )
