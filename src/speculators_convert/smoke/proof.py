"""From a checkpoint and a user's options to a verdict: find the target and the prompts, run the engine, judge what it measured."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.digest import checkpoint_digest
from speculators_convert.errors import SmokeError, UsageError
from speculators_convert.smoke.reference import Progress, ReferenceRun
from speculators_convert.smoke_result import CheckpointDigest, Comparison, ModeResult, Prompt, SmokeConfig, SmokeOptions, SmokeResult
from speculators_convert.sources import LocalSource, Source, open_source
from speculators_convert.spec import DraftSpec
from speculators_convert.version import __version__

DEFAULT_PROMPTS = Path(__file__).parent / "prompts.jsonl"
ENGINES = ("reference",)


def prove(spec: DraftSpec, checkpoint: Checkpoint, source: Source, options: SmokeOptions, progress: Progress) -> SmokeResult:
    """The result of one run; verdict `not-run`, with the reason, when the engine could not be started."""
    if options.engine not in ENGINES:
        raise UsageError("there is no such engine", where="--engine", measured=options.engine, expected="one of " + ", ".join(ENGINES))
    digest = checkpoint_digest(source, checkpoint)
    try:
        target = target_folder(spec, source, options.target)
        config = _configure(spec, source, target, options)
        prompts = _prompts(options, target, config.dtype)
        run = _engine(config, spec, source, target, prompts, progress)
    except SmokeError as error:
        reason = "; ".join(text for text in (str(error), error.hint) if text)
        return _result(digest, None, options, SmokeConfig(draft=source.id.name, target=options.target or ""), None, ("not-run", (reason,)))
    target_source = LocalSource(target)
    return _result(digest, checkpoint_digest(target_source, collect(target_source, payloads=())), options, config, run, judge(run, config))


def judge(run: ReferenceRun, config: SmokeConfig) -> tuple[str, tuple[str, ...]]:
    """Verdict and reasons: every comparison holds, something was drafted, and the acceptance length reaches floor and expectation."""
    failed = [f"{item.name}: measured {item.measured}, expected {item.expected}" for item in (*run.comparisons, *_bounds(run.modes, config)) if not item.holds]
    return ("fail", tuple(failed)) if failed else ("pass", ("every comparison holds",))


def target_folder(spec: DraftSpec, source: Source, stated: str | None) -> Path:
    """The target's folder: `--target`, else the checkpoint's own verifier, looked for inside the checkpoint and beside it."""
    name = stated or spec.verifier.name_or_path
    hint = "pass --target with the folder of the model that the draft was trained for"
    if name is None:
        raise SmokeError("the checkpoint names no verifier", where=source.id.name, hint=hint)
    if stated is None and isinstance(source, LocalSource):
        for base in (source.root, source.root.parent):
            if (base / name / "config.json").is_file():
                return (base / name).resolve()
    opened = open_source(name) if stated is not None or Path(name).is_dir() else None
    if isinstance(opened, LocalSource):
        return opened.root
    raise SmokeError("the target is not a folder on this machine", where=name, measured="the checkpoint's verifier" if stated is None else "--target", hint=hint)


def _bounds(modes: tuple[ModeResult, ...], config: SmokeConfig) -> tuple[Comparison, ...]:
    found = []
    for mode in modes:
        name, length = f"{mode.mode} tp {mode.tp}", mode.acceptance_length
        found.append(Comparison(name=f"{name}: tokens were drafted", holds=mode.drafted_tokens > 0, measured=str(mode.drafted_tokens), expected="more than 0"))
        found.append(Comparison(name=f"{name}: acceptance length reaches the floor", holds=length >= config.floor, measured=f"{length:.3f}", expected=f"at least {config.floor}"))
        if config.expect is not None:
            near = abs(length - config.expect) <= config.expect_tolerance
            found.append(
                Comparison(name=f"{name}: acceptance length is the expected one", holds=near, measured=f"{length:.3f}", expected=f"{config.expect} +- {config.expect_tolerance}")
            )
    return tuple(found)


def _configure(spec: DraftSpec, source: Source, target: Path, options: SmokeOptions) -> SmokeConfig:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise SmokeError("the reference engine needs " + " and ".join(missing), hint='pip install "speculators-convert[engine]"')
    device = options.device or _device()
    dtype = options.dtype or ("float32" if device == "cpu" or spec.dtype not in ("float32", "bfloat16") else spec.dtype)
    chosen = {name: getattr(options, name) for name in ("engine", "modes", "tp", "max_new_tokens", "batch_size", "floor", "expect")}
    return SmokeConfig(draft=source.id.name, target=str(target), dtype=dtype, device=device, **chosen)


def _device() -> str:
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else "cpu"


def _prompts(options: SmokeOptions, target: Path, dtype: str) -> tuple[Prompt, ...]:
    """The prompts; continuations recorded in float32 are compared in float32 only."""
    from speculators_convert.smoke.prompts import read_prompts  # noqa: PLC0415

    prompts = read_prompts(Path(options.prompts) if options.prompts else DEFAULT_PROMPTS, target)
    return prompts if dtype == "float32" else tuple(Prompt(input_ids=prompt.input_ids) for prompt in prompts)


def _engine(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: tuple[Prompt, ...], progress: Progress) -> ReferenceRun:  # noqa: PLR0917
    from speculators_convert.smoke import reference  # noqa: PLC0415

    return reference.run(config, spec, source, target, prompts, progress)


def _result(
    digest: CheckpointDigest, target: CheckpointDigest | None, options: SmokeOptions, config: SmokeConfig, run: ReferenceRun | None, verdict: tuple[str, tuple[str, ...]]
) -> SmokeResult:  # noqa: PLR0917
    bounds = _bounds(run.modes, config) if run else ()
    return SmokeResult(
        tool_version=__version__,
        checkpoint=digest,
        target=target,
        engine=options.engine,
        engine_reason="stated",
        environment=run.environment if run else {},
        parameters=config.model_dump(mode="json"),
        modes=run.modes if run else (),
        comparisons=(*run.comparisons, *bounds) if run else (),
        verdict=verdict[0],
        reasons=verdict[1],
    )
