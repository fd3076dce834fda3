"""From a checkpoint and a user's options to a verdict: find the target and the prompts, run the engine, judge what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from speculators_convert import workloads
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.digest import checkpoint_digest
from speculators_convert.errors import SmokeError, SourceError, UsageError
from speculators_convert.results.smoke import Comparison, ModeResult, Prompt, ServerOptions, SmokeConfig, SmokeOptions, SmokeResult
from speculators_convert.serving import backends
from speculators_convert.smoke import reference
from speculators_convert.smoke.compare import Progress
from speculators_convert.sources import LocalSource, Source, loadable, local_folder
from speculators_convert.sources.hub import parse_reference
from speculators_convert.spec import Anchor, DraftSpec
from speculators_convert.version import __version__
from speculators_convert.workloads import Skipped
from speculators_convert.workloads.prompt_file import read_prompts

DEFAULT_PROMPTS = Path(__file__).parent / "prompts.jsonl"
_COPIED = ("engine", "tp", "max_new_tokens", "batch_size", "temperature", "seed", "timeout_seconds", "floor", "expect", "servers")
ENGINES = ("auto", "reference", "sglang")
_SERVER_OPTIONS = {
    "attention_backend": "--attention-backend",
    "draft_attention_backend": "--draft-attention-backend",
    "words": "--server-arg",
    "concurrency": "--concurrency",
    "control": "--no-control",
    "parallel": "--parallel",
    "image": "--image",
    "nodes": "--nnodes",
}


def prove(spec: DraftSpec, checkpoint: Checkpoint, source: Source, options: SmokeOptions, progress: Progress) -> SmokeResult:
    """The result of one run; verdict `not-run`, with the reason, when the engine could not be started."""
    if options.engine not in ENGINES:
        raise UsageError("there is no such engine", where="--engine", measured=options.engine, expected="one of " + ", ".join(ENGINES))
    engine, why = pick_engine(options)
    options = options.model_copy(update={"engine": engine})
    _demand_options(options, f"engine {engine} ({why})")
    own = checkpoint_digest(source, checkpoint)
    result = partial(SmokeResult, tool_version=__version__, checkpoint=own, engine=engine, engine_reason=why)
    try:
        target = target_folder(spec, source, options.target)
        config = configure(spec, source, target, options)
        opened = LocalSource(target)
        theirs = checkpoint_digest(opened, collect(opened, payloads=()))
        prompts, left_out = _prompts(options, target, config.dtype)
        if engine == "sglang":
            from speculators_convert.smoke.sglang import backend  # noqa: PLC0415

            run = backend.run(config, spec, source, target, prompts, progress, (own.digest, theirs.digest))
        else:
            run = reference.run(config, spec, source, target, prompts, progress)
    except SmokeError as error:
        reason = "; ".join(text for text in (str(error), error.hint) if text)
        return result(target=None, environment={}, parameters=options.model_dump(mode="json"), modes=(), comparisons=(), verdict="not-run", reasons=(reason,))
    comparisons = (*run.comparisons, *_bounds(run.modes, config))
    verdict, reasons = judge(comparisons)
    return result(
        target=theirs,
        environment={**run.environment, **({"prompts": left_out} if left_out else {})},
        parameters=config.model_dump(mode="json"),
        modes=run.modes,
        equivalence=run.equivalence,
        comparisons=comparisons,
        sampled=run.sampled,
        servers=run.servers,
        verdict=verdict,
        reasons=reasons,
    )


def _demand_options(options: SmokeOptions, chosen: str) -> None:
    """`UsageError` for a mode that stands twice, and for what only a server can be told while none is `chosen`."""
    modes = options.modes or ()
    if len(set(modes)) < len(modes):
        raise UsageError("a mode stands twice", where="--modes", measured=",".join(modes), expected=",".join(dict.fromkeys(modes)))
    servers = options.servers.model_dump(exclude_defaults=True)
    stated = [option for name, option in _SERVER_OPTIONS.items() if name in servers]
    if options.engine == "reference" and stated:
        raise UsageError("only SGLang's servers take these options", where=", ".join(stated), measured=chosen, expected="--engine sglang, or none of them")


def pick_engine(options: SmokeOptions) -> tuple[str, str]:
    """The engine, and why: SGLang where it and a CUDA device are there, unless one is stated."""
    if options.engine != "auto":
        return options.engine, "stated"
    if find_spec("sglang") is None:
        return "reference", "SGLang is not installed"
    if options.device == "cpu" or _device() == "cpu":
        return "reference", "SGLang is installed, but no CUDA device is used"
    return "sglang", "SGLang is installed and there is a CUDA device"


def judge(comparisons: Sequence[Comparison]) -> tuple[str, tuple[str, ...]]:
    """`pass` when every comparison holds; else `fail` with each that does not."""
    failed = tuple(f"{item.name}: measured {item.measured}, expected {item.expected}" for item in comparisons if not item.holds)
    return ("fail", failed) if failed else ("pass", ("every comparison holds",))


def target_folder(spec: DraftSpec, source: Source, stated: str | None) -> Path:
    """The target's folder: `--target`, else the checkpoint's own verifier, looked for inside the checkpoint and beside it."""
    name = stated or spec.verifier.name_or_path
    hint = "pass --target with the folder of the model that the draft was trained for"
    if name is None:
        raise SmokeError("the checkpoint names no verifier", where=source.id.name, hint=hint)
    if stated is None and isinstance(source, LocalSource):
        for base in (source.root, source.root.parent):
            if (base / name / "config.json").is_file():
                return loadable((base / name).resolve())
    if stated is None and parse_reference(name) is None:
        raise SmokeError(
            "the checkpoint's verifier is not a folder on this machine, nor a Hub id", where=name, expected="a folder inside or beside the checkpoint, or ORG/NAME", hint=hint
        )
    try:
        return local_folder(name)
    except SourceError as error:
        if stated is not None:
            raise
        raise SmokeError(f"the checkpoint's verifier cannot be had: {error}", where=name, hint=hint) from error


def _bounds(modes: tuple[ModeResult, ...], config: SmokeConfig) -> tuple[Comparison, ...]:
    found = []
    for mode in modes:
        name, length = mode.name, mode.acceptance_length
        found.append(Comparison(name=f"{name}: tokens were drafted", holds=mode.drafted_tokens > 0, measured=str(mode.drafted_tokens), expected="more than 0"))
        found.append(Comparison(name=f"{name}: acceptance length reaches the floor", holds=length >= config.floor, measured=f"{length:.3f}", expected=f"at least {config.floor}"))
        if config.expect is not None and (config.engine != "sglang" or (mode.temperature == 0 and mode.concurrency == 1)):
            near = abs(length - config.expect) <= config.expect_tolerance
            found.append(
                Comparison(name=f"{name}: acceptance length is the expected one", holds=near, measured=f"{length:.3f}", expected=f"{config.expect} +- {config.expect_tolerance}")
            )
    return tuple(found)


def configure(spec: DraftSpec, source: Source, target: Path, options: SmokeOptions) -> SmokeConfig:
    """The options with what they leave open decided; `SmokeError` without torch and transformers."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise SmokeError("the reference engine needs " + " and ".join(missing), hint='pip install "speculators-convert[engine]"')
    device = options.device or _device()
    dtype = options.dtype or ("float32" if device == "cpu" or spec.dtype not in ("float32", "bfloat16") else spec.dtype)
    chosen = {name: getattr(options, name) for name in _COPIED}
    chosen["modes"] = options.modes or (("eager", "graph") if options.engine == "sglang" and device != "cpu" else ("eager",))
    if options.engine == "sglang":
        chosen["servers"] = _with_backends(options, spec, target, device)
    return SmokeConfig(draft=source.id.name, target=str(target), dtype=dtype, device=device, **chosen)


def backends_for(spec: DraftSpec, target: Path, capability: str | None) -> backends.Backends:
    """The table's attention back ends for a draft and the model in the folder `target`; no `capability` is a CPU."""
    from speculators_convert.smoke.sglang.attention import target_heads  # noqa: PLC0415
    from speculators_convert.smoke.sglang.plugin import in_force  # noqa: PLC0415

    heads = target_heads(target)
    bonus, live = spec.anchor is Anchor.BONUS, in_force(spec)
    return backends.choose(capability, bonus_anchor=bonus, plugin_live=live, sliding=spec.slides, head_dim=spec.head_dim, target_head_dim=heads)


def _with_backends(options: SmokeOptions, spec: DraftSpec, target: Path, device: str) -> ServerOptions:
    """The attention back ends that are stated, else those of the table for this GPU."""
    from speculators_convert.smoke.sglang.attention import capability  # noqa: PLC0415

    chosen = backends_for(spec, target, capability(device))
    found = options.servers
    return found.model_copy(update={"attention_backend": found.attention_backend or chosen.target, "draft_attention_backend": found.draft_attention_backend or chosen.draft})


def _device() -> str:
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else "cpu"


def _prompts(options: SmokeOptions, target: Path, dtype: str) -> tuple[tuple[Prompt, ...], str | None]:
    """The prompts, and what was left out of a workload; continuations recorded in float32 are compared in float32 only."""
    name = options.prompts or str(DEFAULT_PROMPTS)
    skipped: list[Skipped] = []
    named = workloads.is_named(name)
    prompts = workloads.load_workload(name, target, output_tokens=options.max_new_tokens, report=skipped.append) if named else read_prompts(Path(name), target)
    left_out = f"{name}: {len(prompts)} of {len(prompts) + len(skipped)} requests, {len(skipped)} do not fit ({skipped[0].reason})" if skipped else None
    return (prompts if dtype == "float32" else tuple(Prompt(input_ids=prompt.input_ids) for prompt in prompts)), left_out
