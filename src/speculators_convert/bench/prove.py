"""From references and options to a run: find the folders, load the requests, make the plan, choose the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speculators_convert import workloads
from speculators_convert.bench import plan, reference, run, sglang
from speculators_convert.bench.engine import Engine
from speculators_convert.bench.run import Progress, Unfinished
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.digest import checkpoint_digest
from speculators_convert.errors import UsageError
from speculators_convert.results.bench import PLAIN, BenchOptions, BenchReport
from speculators_convert.sources import LocalSource, Source, local_folder
from speculators_convert.spec import DraftSpec

ENGINES = ("sglang", "reference")


@dataclass(frozen=True, slots=True)
class Draft:
    """One arm's draft as it was inspected."""

    name: str
    reference: str
    source: Source
    checkpoint: Checkpoint
    spec: DraftSpec


def bench(drafts: tuple[Draft, ...], target: Path, out: Path, options: BenchOptions, progress: Progress) -> BenchReport | Unfinished:
    """The whole run, or what of it the budget allows."""
    if options.engine not in ENGINES:
        raise UsageError("there is no such engine", where="--engine", measured=options.engine, expected=" or ".join(ENGINES))
    names = [PLAIN, *(draft.name for draft in drafts)]
    if len(set(names)) != len(names):
        raise UsageError("each arm needs a name of its own", where="--also", measured=", ".join(names), expected="names that differ")
    settings = (sglang if options.engine == "sglang" else reference).settings(options)
    if options.engine == "sglang":
        settings |= sglang.notes(settings, {draft.name: draft.spec for draft in drafts}, target, options)
    workload = workloads.load(options.workload, target, output_tokens=options.output_tokens, topic_limit=options.topic_limit)
    workloads.refuse_nothing_left(workload)
    if options.engine == "reference":
        workloads.refuse_images(workload)
    progress(0, 1, "digesting the checkpoints")
    opened = LocalSource(target)
    digests = {draft.name: checkpoint_digest(draft.source, draft.checkpoint) for draft in drafts}
    decided = plan.make(options, checkpoint_digest(opened, collect(opened, payloads=())), digests, workload, settings)
    engine: Engine
    if options.engine == "sglang":
        folders: dict[str, Path | None] = {PLAIN: None, **{draft.name: local_folder(draft.reference) for draft in drafts}}
        engine = sglang.SGLang(decided, workload, target, folders, options)
    else:
        longest = max(len(request.input_ids) for request in workload.requests)
        engine = reference.Reference(decided, target, {draft.name: (draft.reference, draft.spec) for draft in drafts}, longest)
    return run.run(decided, workload, engine, out, options.budget_seconds, progress)
