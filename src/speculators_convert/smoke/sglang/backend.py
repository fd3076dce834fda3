"""`--engine sglang`: plan the servers, ask them, measure the reference engine beside them, and say what all of it proves."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from speculators_convert.errors import SmokeError, UsageError
from speculators_convert.results.smoke import Comparison, EngineRun, Nodes, Prompt, SmokeConfig
from speculators_convert.serving import backends, devices
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.process import ServerFailedError, require_sglang, telling
from speculators_convert.serving.versions import installed
from speculators_convert.smoke.compare import Progress
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS
from speculators_convert.smoke.null_draft import write_null_draft
from speculators_convert.smoke.sglang import attention, claims, fleet, nodes, plan
from speculators_convert.smoke.sglang.ask import about
from speculators_convert.smoke.sglang.plugin import in_force
from speculators_convert.smoke.sglang.store import Store
from speculators_convert.sources import LocalSource, Source, loadable, local_folder
from speculators_convert.spec import Anchor, DraftSpec, known
from speculators_convert.workloads.tokens import max_positions

MODES = ("eager", "graph")
UNBOUNDED = 1 << 20
"""Positions of a target that states none."""
_OWN_WORDS = (
    "--model-path", "--speculative-draft-model-path", "--speculative-algorithm", "--load-format", "--json-model-override-args", "--config", "--tp-size", "--tensor-parallel-size",
    "--dtype", "--device", "--host", "--port", "--speculative-draft-load-format", "--tokenizer-path",
)  # fmt: skip
"""Words that would put other models or places under the run's name; argparse takes their beginnings too."""
KEEP = "a-server-failed"
"""Mark of a folder whose logs say why."""
_DISTRIBUTIONS = ("sglang", "torch", "transformers", "flashinfer-python", "triton", "speculators-convert")


def run(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress, digests: Sequence[str]) -> EngineRun:
    """All servers of the plan over `prompts`. Servers that fail are claims that do not hold; `SmokeError` where none can be started at all.

    `digests` are those of draft and target: rows in the run's folder count for these bytes only.
    """
    require_sglang()
    _demand(config)
    noted = _attention(config, spec, target)
    _demand_prompts(prompts, spec, target, config.max_new_tokens)
    gamma, around = known(spec.gamma, "gamma"), environment(config)
    with _folder(config) as folder:
        store = Store(folder, digests, {**around, **telling(os.environ)})
        around |= noted
        null = _null_draft(config, spec, source, target, folder, digests)
        served = _with_long_context(prompts, spec, target, config)
        config = _with_company(config, len(served))
        servers = plan.servers(config, plan.Folders(str(target), str(_draft_folder(source)), str(null) if null else None, _null_backend(config, spec)), gamma, served)
        if config.servers.nodes is not None and config.servers.nodes.rank > 0:
            return _follow(config.servers.nodes, servers, store, config.timeout_seconds, around)
        outcome = fleet.run(servers, config, served, store, progress)
        records = tuple(outcome.rows[server.name].record for server in servers if server.name in outcome.rows)
        if outcome.failures:
            (folder / KEEP).touch()
            return EngineRun(modes=(), environment=around, comparisons=tuple(map(_failed, outcome.failures)), equivalence=(), servers=records)
    from speculators_convert.smoke.sglang.judge import Judge  # noqa: PLC0415

    judge = Judge(config, gamma, served, servers, outcome.rows)
    reference = judge.reference(spec, source, target, progress)
    return EngineRun(
        modes=tuple(judge.modes),
        environment={**around, "reference engine": f"not run: {reference}"} if isinstance(reference, str) else around,
        comparisons=(*(claims.serves(server, outcome.rows[server.name]) for server in servers), *judge.comparisons),
        equivalence=tuple(judge.equivalence),
        sampled=tuple(judge.sampled),
        servers=records,
    )


def _follow(place: Nodes, servers: Sequence[ServerConfig], store: Store, timeout: float, around: dict[str, str]) -> EngineRun:
    """This machine's part of a run that machine 0 asks and judges."""
    served = nodes.follow(place, [server for server in servers if server.nodes is not None], store.folder / "logs", timeout)
    name = f"machine {place.rank}: served with machine 0, which asks and judges"
    claim = Comparison(name=name, holds=bool(served), measured=", ".join(served) or "nothing", expected="1 or more servers")
    return EngineRun(modes=(), environment=around, comparisons=(claim,), equivalence=())


def _failed(error: ServerFailedError) -> Comparison:
    """A server that failed is a claim that does not hold."""
    measured = "; ".join(text for text in (error.what, str(error.measured), error.hint) if text)
    return Comparison(name=f"{error.where}: loads and answers", holds=False, measured=measured, expected="a server that loads and answers")


def environment(config: SmokeConfig) -> dict[str, str]:
    """Versions, and the GPU with its driver."""
    found = installed(_DISTRIBUTIONS)
    gpus = devices.gpus() if config.device != "cpu" else ()
    if gpus:
        found |= {"gpu": ", ".join(sorted({gpu.name for gpu in gpus})), "gpus": str(len(gpus)), "driver": gpus[0].driver, "compute capability": gpus[0].capability}
    return {**found, "device": config.device, "dtype": config.dtype}


def _demand(config: SmokeConfig) -> None:
    for mode in config.modes:
        if mode not in MODES:
            raise UsageError("the engine has no such mode", where="--modes", measured=mode, expected=", ".join(MODES))
        if mode == "graph" and config.device == "cpu":
            raise UsageError("SGLang captures no graph on a CPU", where="--modes", measured=mode, expected="eager", hint="run on a GPU, or with --modes eager")
    for word in config.servers.words:
        flag = word.partition("=")[0]
        if flag.startswith("--") and any(own.startswith(flag) for own in _OWN_WORDS):
            hint = "use the option of smoke for it, or none: the result stands for the draft and the target that it names"
            raise UsageError("this word is the run's own", where="--server-arg", measured=word, expected="a word that leaves models, types and places alone", hint=hint)
    if config.dtype not in TOLERANCE_STEPS:
        raise UsageError("there is no tolerance for this dtype", where="--dtype", measured=config.dtype, expected=" or ".join(TOLERANCE_STEPS))
    if config.servers.image is not None:
        about(Path(config.servers.image))
    place, count = config.servers.nodes, len(devices.gpus())
    if place is not None and config.tp % place.count:
        raise UsageError("ranks do not divide over the machines", where="--tp", measured=config.tp, expected=f"a multiple of --nnodes {place.count}")
    machines = place.count if place else 1
    if config.device != "cpu" and config.tp > count * machines:
        raise SmokeError("there are fewer CUDA devices than ranks", where="--tp", measured=f"{count * machines} devices", expected=str(config.tp), hint="use a smaller --tp")


def _attention(config: SmokeConfig, spec: DraftSpec, target: Path) -> dict[str, str]:
    """What is known against the back ends and lets servers start; `UsageError` for the rest."""
    chosen: dict[backends.Role, str | None] = {"target": config.servers.attention_backend, "draft": config.servers.draft_attention_backend}
    on, heads = attention.capability(config.device), attention.target_heads(target)
    found = attention.notes(chosen, on, spec, heads, plugin_live=in_force(spec), graph="graph" in config.modes)
    return {f"{role} attention": note for role, note in found.items()}


def _demand_prompts(prompts: Sequence[Prompt], spec: DraftSpec, target: Path, max_new_tokens: int) -> None:
    """What a server would refuse is refused before one starts: ids outside the vocabulary, and more tokens than positions."""
    vocabulary, room = known(spec.target_vocab_size, "vocab_size"), max_positions(target) or UNBOUNDED
    for number, prompt in enumerate(prompts, 1):
        if max(prompt.input_ids) >= vocabulary:
            hint = "the prompts are for another tokenizer"
            raise SmokeError("a token id is outside the vocabulary", where=f"prompt {number}", measured=max(prompt.input_ids), expected=f"below {vocabulary}", hint=hint)
        if len(prompt.input_ids) + max_new_tokens > room:
            measured, hint = len(prompt.input_ids) + max_new_tokens, "use shorter prompts or a smaller --max-new-tokens"
            raise SmokeError("prompt and output are longer than the target's positions", where=f"prompt {number}", measured=measured, expected=f"at most {room}", hint=hint)


def _with_company(config: SmokeConfig, prompts: int) -> SmokeConfig:
    """No more requests at once than there are prompts."""
    if prompts < 2:
        raise UsageError("one prompt cannot run beside others", where="--prompts", measured=prompts, expected="2 or more")
    servers = config.servers.model_copy(update={"concurrency": min(config.servers.concurrency, prompts)})
    return config.model_copy(update={"servers": servers})


@contextmanager
def _folder(config: SmokeConfig) -> Iterator[Path]:
    """`--out`, which stays, or a folder of its own, which goes unless a server failed: then its log is needed."""
    if config.servers.out is not None:
        yield Path(config.servers.out)
        return
    folder = Path(tempfile.mkdtemp(prefix="spec-convert-smoke-"))
    try:
        yield folder
    finally:
        if not (folder / KEEP).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _null_draft(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, folder: Path, digests: Sequence[str]) -> Path | None:
    """The control's draft, made once for each pair."""
    if not config.servers.control:
        return None
    out = folder / f"null-draft-{digests[0][:12]}-{digests[1][:12]}"
    return out if out.is_dir() else write_null_draft(spec, source, target, out)


def _null_backend(config: SmokeConfig, spec: DraftSpec) -> str | None:
    """The null draft is no Speculators file, so that the plugin mends nothing for it: another back end where the draft's own needs that."""
    name, on = config.servers.draft_attention_backend, attention.capability(config.device)
    if on is None or name is None:
        return None
    bonus = spec.anchor is Anchor.BONUS
    if backends.problem(on, "draft", name, backends.Case(bonus_anchor=bonus, plugin_live=False, head_dim=spec.head_dim)) is None:
        return None
    return backends.choose(on, bonus_anchor=bonus, plugin_live=False, head_dim=spec.head_dim).draft


def _draft_folder(source: Source) -> Path:
    """Where SGLang finds the draft."""
    if isinstance(source, LocalSource):
        return loadable(source.root)
    return local_folder(f"hf:{source.id.name}@{source.id.revision}" if source.id.revision else source.id.name)


def _with_long_context(prompts: Sequence[Prompt], spec: DraftSpec, target: Path, config: SmokeConfig) -> tuple[Prompt, ...]:
    """The prompts, and for a draft with sliding layers one that goes past the window where none does: others strung together."""
    window = spec.sliding_window if spec.slides else None
    room = (max_positions(target) or UNBOUNDED) - config.max_new_tokens - 2 * known(spec.query_slots, "block_size")
    if window is None or any(len(prompt.input_ids) > window for prompt in prompts) or room <= window:
        return tuple(prompts)
    ids = [token for prompt in prompts for token in prompt.input_ids]
    while len(ids) < room:
        ids += ids
    return (*prompts, Prompt(input_ids=tuple(ids[: min(room, 2 * window)])))
