"""From a checkpoint and a user's options to the probe's result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.digest import checkpoint_digest
from speculators_convert.errors import SmokeError
from speculators_convert.results.probe import ProbeOptions, ProbeResult
from speculators_convert.results.smoke import Prompt, SmokeConfig, SmokeOptions
from speculators_convert.smoke import proof
from speculators_convert.smoke.compare import Progress
from speculators_convert.sources import LocalSource, Source
from speculators_convert.spec import DraftSpec, known
from speculators_convert.version import __version__
from speculators_convert.workloads.prompt_file import read_prompts

if TYPE_CHECKING:
    from speculators_convert.probe.hypotheses import TargetFacts
    from speculators_convert.smoke.engine.target import Target

DEFAULT_TEXTS = Path(__file__).parent / "texts.jsonl"
_SPECIAL = ("mask", "pad", "unk", "eos", "bos")


@dataclass(frozen=True, slots=True)
class _Place:
    config: SmokeConfig
    target: Path


def prove(spec: DraftSpec, checkpoint: Checkpoint, source: Source, options: ProbeOptions, progress: Progress) -> ProbeResult:
    """The ranking of the readings of `spec`; `SmokeError` when the draft cannot be run at all."""
    place = _place(spec, source, options)
    from speculators_convert.probe.hypotheses import ask  # noqa: PLC0415
    from speculators_convert.probe.run import rank  # noqa: PLC0415
    from speculators_convert.smoke.engine import fit, load, session  # noqa: PLC0415
    from speculators_convert.smoke.engine.target import load_target  # noqa: PLC0415

    where = load.placement(place.config.dtype, place.config.device)
    progress(0, 1, "loading the target")
    target = load_target(place.target, known(spec.target_layer_ids, "target_layer_ids"), where)
    question = ask(spec, _block_size(checkpoint), target_facts(target, place.target))
    if options.facts:
        question = replace(question, others=tuple(item for item in question.others if item.fact in options.facts))
    fit.demand_fit(question.stated.reading.spec, target)
    prompts = _prompts(options, place.target)
    fit.demand_tokens([prompt.input_ids for prompt in prompts], target)
    with session.threads(target.parameter_count() if place.config.device == "cpu" else None):
        ranking = rank(question, source, target, prompts, where, progress)
    opened = LocalSource(place.target)
    return ProbeResult(
        tool_version=__version__,
        checkpoint=checkpoint_digest(source, checkpoint),
        target=checkpoint_digest(opened, collect(opened, payloads=())),
        environment=session.environment(place.config, session.Rank(0, 1, place.config.device)),
        parameters=options.model_dump(mode="json"),
        texts=ranking.texts,
        continuations=ranking.continuations,
        hypotheses=ranking.hypotheses,
        target_passes=ranking.target_passes,
        best=ranking.best,
        contradicts=ranking.contradicts,
        reasons=ranking.reasons,
    )


def target_facts(target: Target, folder: Path) -> TargetFacts:
    """Depth, theta and special tokens of a target: those of its tokenizer, where it has one, and of its config."""
    from speculators_convert.probe.hypotheses import TargetFacts  # noqa: PLC0415

    config = target.config
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    theta = theta if theta is not None else getattr(config, "rope_theta", None)
    tokens: dict[int, str] = {}
    for token, name in (*_tokenizer_tokens(folder), *((getattr(config, f"{name}_token_id", None), name) for name in _SPECIAL), *((token, "eos") for token in target.stop_ids())):
        if type(token) is int and 0 <= token < target.shared.embedding.shape[0]:
            tokens.setdefault(token, name if name not in tokens.values() else f"{name} {token}")
    return TargetFacts(int(config.num_hidden_layers), float(theta) if theta is not None else None, tokens)


def _tokenizer_tokens(folder: Path) -> Iterator[tuple[object, str]]:
    from speculators_convert.workloads.tokens import load_tokenizer  # noqa: PLC0415

    try:
        tokenizer = load_tokenizer(folder)
    except SmokeError:
        return  # a target without a tokenizer has its config alone
    for name in _SPECIAL:
        yield getattr(tokenizer, f"{name}_token_id", None), name


def _place(spec: DraftSpec, source: Source, options: ProbeOptions) -> _Place:
    target = proof.target_folder(spec, source, options.target)
    return _Place(proof.configure(spec, source, target, SmokeOptions(dtype=options.dtype, device=options.device)), target)


def _prompts(options: ProbeOptions, target: Path) -> tuple[Prompt, ...]:
    files = [Path(name) for name in options.prompts] or [DEFAULT_TEXTS]
    return tuple(prompt for file in files for prompt in read_prompts(file, target))


def _block_size(checkpoint: Checkpoint) -> int | None:
    value = checkpoint.config.get("block_size")
    return value if type(value) is int else None
