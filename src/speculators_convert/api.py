"""The Python API: `inspect`, `normalize` and `smoke` return the values behind the JSON. The only module that chains stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from speculators_convert import checks, engines, geometry
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.errors import RefusedError, SmokeError, UsageError
from speculators_convert.findings import FormatInfo, Report, SourceInfo
from speculators_convert.formats import Reading, detect
from speculators_convert.model import Severity
from speculators_convert.rewrite.ranks import assembled
from speculators_convert.sources import Source, open_source, streamed, verify
from speculators_convert.spec import DraftSpec, Settings
from speculators_convert.target.pairing import Pairing, collect_pairing
from speculators_convert.target.vocabulary import VocabularyTables, read_tables
from speculators_convert.version import __version__

if TYPE_CHECKING:
    from speculators_convert.diff import DiffResult
    from speculators_convert.results.bench import BenchOptions, BenchReport
    from speculators_convert.results.probe import ProbeOptions, ProbeResult
    from speculators_convert.results.smoke import SmokeOptions, SmokeResult
    from speculators_convert.rewrite.plan import RewritePlan
    from speculators_convert.rewrite.receipt import Receipt
    from speculators_convert.values import ValueFacts

DEFAULT_LAYOUT = "speculators"
Progress = Callable[[int, int, str], None]
"""Called with (done, total, what) during long work."""


def no_progress(done: int, total: int, what: str) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that one look at a checkpoint gathered."""

    source: Source
    target_source: Source | None
    checkpoint: Checkpoint
    reading: Reading | None
    tables: VocabularyTables | None
    pairing: Pairing | None
    report: Report

    @property
    def spec(self) -> DraftSpec:
        """The normal form; `RefusedError` when there is none."""
        if self.reading is None:
            raise RefusedError("the format was not recognised", where=self.source.id.name, hint="run inspect: it lists what was looked for")
        return self.reading.spec


def inspect(reference: str, *, target: str | None = None, tp: Iterable[int] = (), settings: Settings | None = None, deep: bool = False, progress: Progress = no_progress) -> Report:
    """Look at a checkpoint; see `findings.Report`. With `deep` all weights are read once, streaming; else none. `SourceError` when it cannot be read."""
    return look(reference, target=target, tp=tp, settings=settings, deep=deep, progress=progress).report


def look(
    reference: str, *, target: str | None = None, tp: Iterable[int] = (), settings: Settings | None = None, deep: bool = False, progress: Progress = no_progress
) -> Inspection:
    """`inspect` with the values that later stages need."""
    source, stated, degrees = assembled(open_source(reference)), settings or Settings(), tuple(sorted(set(tp)))
    checkpoint = collect(source)
    detection = detect(checkpoint)
    reading = detection.format.read(checkpoint, stated) if detection.format else None
    tables = read_tables(checkpoint) if reading else None
    spec = reading.spec if reading else None
    target_source = open_source(target) if target is not None else None
    pairing = collect_pairing(source, spec, tables, target_source, collect(target_source)) if target_source else None
    verdicts = engines.verdicts(spec, checkpoint, reference, degrees, pairing=pairing) if spec else ()
    evidence = checks.Evidence(
        checkpoint=checkpoint,
        settings=stated,
        tp_degrees=degrees,
        format_name=detection.format.name if detection.format else None,
        reading=reading,
        spec=spec,
        tables=tables,
        pairing=pairing,
        values=_values(source, checkpoint, spec, tables, target_source, pairing, progress) if deep else None,
        verdicts=verdicts or None,
    )
    findings, skipped = checks.run(evidence)
    report = Report(
        tool_version=__version__,
        source=SourceInfo(
            kind=source.id.kind,
            name=source.id.name,
            revision=source.id.revision,
            files=tuple(info.path for info in checkpoint.files),
            total_bytes=sum(info.size_bytes for info in checkpoint.files),
        ),
        format=FormatInfo(name=detection.format.name if detection.format else "unknown", title=detection.format.title if detection.format else "not recognised", why=detection.why),
        spec=spec,
        geometry=geometry.describe(spec) if spec else (),
        tensors=geometry.tensor_rows(spec) if spec else (),
        size=geometry.sizes(spec, degrees) if spec else None,
        findings=findings,
        skipped=skipped,
        engines=verdicts,
    )
    return Inspection(source, target_source, checkpoint, reading, tables, pairing, report)


def _values(
    source: Source, checkpoint: Checkpoint, spec: DraftSpec | None, tables: VocabularyTables | None, target_source: Source | None, pairing: Pairing | None, progress: Progress
) -> ValueFacts:
    """What the weights themselves say, and with a target each shared row."""
    from speculators_convert.values import scan, shared_rows  # noqa: PLC0415

    with streamed(source) as stream:
        facts = scan(stream, checkpoint, progress=lambda done, total, _: progress(done, total, "reading weights"))
        verify(stream)
    if spec is None or target_source is None or pairing is None:
        return facts
    theirs = {role: location for role, location in (("embed_tokens.weight", pairing.embed), ("lm_head.weight", pairing.head)) if location is not None}
    return replace(facts, rows=shared_rows(source, spec.tensors, tables.targets(spec.d2t) if tables else None, target_source, theirs))


def refuse_errors(inspection: Inspection) -> None:
    """`RefusedError` when the report has a finding of severity error."""
    errors = [finding for finding in inspection.report.findings if finding.severity is Severity.ERROR]
    if errors:
        lines = "; ".join(f"{finding.code} {finding.message} ({finding.subject}: measured {finding.measured}, expected {finding.expected})" for finding in errors[:5])
        more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise RefusedError(f"the checkpoint has {len(errors)} error(s): {lines}{more}", where=inspection.source.id.name, hint=errors[0].hint)


@dataclass(frozen=True, slots=True)
class RewriteChoices:
    """What `normalize` may be told beside the draft.

    `split` ranks for the vocabulary-parallel heads, columns that a dense rewrite adds, a vocabulary to reduce to,
    whether code travels along, and whether files that equal a source file are linked.
    """

    layout: str = DEFAULT_LAYOUT
    split: int | None = None
    rank_pad: int = 8
    reduce_vocab: str | None = None
    corpus: Path | None = None
    copy_code: bool = False
    link: bool = False


def plan_rewrite(inspection: Inspection, choices: RewriteChoices | None = None) -> RewritePlan:
    """What `normalize` would write; `RefusedError` when the checkpoint has errors or the layout cannot express the draft."""
    from speculators_convert.layouts import Options, find  # noqa: PLC0415
    from speculators_convert.write.prepare import Reduction, gather, kept_vocabulary  # noqa: PLC0415

    chosen = choices or RewriteChoices()
    layout = find(chosen.layout)
    if chosen.reduce_vocab is not None and layout.name != "speculators":
        raise UsageError("only the speculators layout has a reduced vocabulary", where="--reduce-vocab", measured=f"--layout {layout.name}", expected="--layout speculators")
    if chosen.corpus is not None and chosen.reduce_vocab is None:
        raise UsageError("--corpus counts tokens for --reduce-vocab", where="--corpus", expected="--reduce-vocab t2d.npy or a number of tokens")
    refuse_errors(inspection)
    target_checkpoint = inspection.pairing.target if inspection.pairing else None
    reduction = Reduction(chosen.reduce_vocab, chosen.corpus) if chosen.reduce_vocab else None
    kept = kept_vocabulary(reduction, inspection.spec, inspection.target_source, target_checkpoint) if reduction else None
    options = Options(pairing=inspection.pairing, rank_pad=chosen.rank_pad, tp=chosen.split, kept=kept, copy_code=chosen.copy_code)
    gathered = gather(layout, inspection.spec, inspection.checkpoint, (inspection.source, inspection.target_source), options)
    return layout.plan(inspection.spec, inspection.checkpoint, gathered)


def normalize(
    reference: str,
    out: Path,
    *,
    layout: str = DEFAULT_LAYOUT,
    target: str | None = None,
    tp: Iterable[int] = (),
    settings: Settings | None = None,
    choices: RewriteChoices | None = None,
    progress: Progress = no_progress,
) -> Receipt:
    """Rewrite a checkpoint into `out`, which must not exist; the receipt also lies in `out`. `choices`, when given, names the layout too."""
    from speculators_convert.write.execution import execute  # noqa: PLC0415

    inspection = look(reference, target=target, tp=tp, settings=settings)
    chosen = choices or RewriteChoices(layout=layout)
    plan = plan_rewrite(inspection, chosen)
    with streamed(inspection.source) as source:
        return execute(plan, source, out, target=inspection.target_source, link=chosen.link, progress=lambda done, total: progress(done, total, "writing"))


def diff(left: str, right: str) -> DiffResult:
    """Whether two checkpoints are the same draft: config by meaning, tensors by role, shape and digest, vocabulary by mapping. Reads all tensors."""
    from speculators_convert.diff import Side, compare  # noqa: PLC0415
    from speculators_convert.tensor_digests import tensor_digests  # noqa: PLC0415

    sides = []
    for reference in (left, right):
        inspection = look(reference)
        sides.append(Side(inspection.spec, read_tables(inspection.checkpoint), tensor_digests(inspection.source, inspection.spec)))
    return compare(*sides)


def smoke(reference: str | None = None, *, options: SmokeOptions | None = None, settings: Settings | None = None, progress: Progress = no_progress) -> SmokeResult:
    """Run a draft against its target and compare with target-only decoding. Without `reference`, the pair that ships with the package."""
    from speculators_convert.results.smoke import SmokeOptions  # noqa: PLC0415
    from speculators_convert.smoke import pair, proof  # noqa: PLC0415

    if settings not in (None, Settings()) and proof.pick_engine(options or SmokeOptions())[0] == "sglang":
        raise UsageError("SGLang reads the files as they are", where="--set", measured="facts stated", expected="none", hint="normalize with --set first, and smoke the result")
    chosen = options or SmokeOptions()
    if reference is None:
        reference = str(pair.DRAFT)
        chosen = chosen.model_copy(update={"target": chosen.target or str(pair.TARGET), "prompts": chosen.prompts or str(pair.PROMPTS)})
    inspection = look(reference, settings=settings)
    refuse_errors(inspection)
    result = proof.prove(inspection.spec, inspection.checkpoint, inspection.source, chosen, progress)
    if result.servers:
        result = _with_anchor_probe(result, inspection, chosen, progress)
    stated = settings.model_dump(mode="json", exclude_none=True) if settings else {}
    made = datetime.now(tz=UTC).isoformat(timespec="seconds")
    recorded = {"parameters": {**result.parameters, "settings": stated}, "environment": {**result.environment, "created": made}, "geometry": geometry.block(inspection.spec)}
    return result.model_copy(update=recorded)


def _with_anchor_probe(result: SmokeResult, inspection: Inspection, options: SmokeOptions, progress: Progress) -> SmokeResult:
    """Acceptance of a flipped anchor can pass any floor: the probe's own comparison of both layouts is a claim of the run.

    It reads the built-in texts; where the target has no tokenizer for them, the run's own prompts.
    """
    from speculators_convert.errors import SmokeError  # noqa: PLC0415
    from speculators_convert.probe import prove  # noqa: PLC0415
    from speculators_convert.results.probe import ProbeOptions  # noqa: PLC0415
    from speculators_convert.results.smoke import Comparison  # noqa: PLC0415
    from speculators_convert.smoke import proof  # noqa: PLC0415

    asked = ProbeOptions(target=options.target, dtype=options.dtype, device=options.device, facts=("anchor",))
    why = list[str]()
    for prompts in ((), *([(options.prompts,)] if options.prompts else [])):
        try:
            found = prove.prove(inspection.spec, inspection.checkpoint, inspection.source, asked.model_copy(update={"prompts": prompts}), progress)
            break
        except (SmokeError, UsageError, RuntimeError) as error:  # the last for want of memory, or of a kernel: the servers' answers stand without it
            why.append(f"{prompts[0] if prompts else 'built-in texts'}: {' '.join(str(error).split())[:300]}")
    else:
        return result.model_copy(update={"environment": {**result.environment, "anchor probe": f"not run: {'; '.join(why)}"}})
    measured = "; ".join(found.reasons)
    claim = Comparison(name="anchor: no other layout drafts better than the file's", holds=not found.contradicts, measured=measured, expected="no contradiction by the probe")
    verdict, reasons = proof.judge(comparisons := (*result.comparisons, claim))
    return result.model_copy(update={"comparisons": comparisons, "verdict": verdict, "reasons": reasons})


def probe(reference: str, *, options: ProbeOptions | None = None, settings: Settings | None = None, progress: Progress = no_progress) -> ProbeResult:
    """Draft under each reading that a file can be mistaken for and say which fits best. Runs on files with findings: these may be what it explains."""
    from speculators_convert.probe import prove  # noqa: PLC0415
    from speculators_convert.results.probe import ProbeOptions  # noqa: PLC0415

    inspection = look(reference, settings=settings)
    return prove.prove(inspection.spec, inspection.checkpoint, inspection.source, options or ProbeOptions(), progress)


def bench(reference: str, out: Path, *, options: BenchOptions | None = None, settings: Settings | None = None, progress: Progress = no_progress) -> BenchReport:
    """Measure a draft against its target alone and keep all raw rows in `out`. `SmokeError` when a request fails, or when the budget ended first: call again."""
    from speculators_convert.bench import prove, run  # noqa: PLC0415
    from speculators_convert.results.bench import DRAFTED, BenchOptions  # noqa: PLC0415
    from speculators_convert.smoke.proof import target_folder  # noqa: PLC0415

    chosen, drafts = options or BenchOptions(), []
    for name, ref in ((DRAFTED, reference), *chosen.also):
        inspection = look(ref, settings=settings if name == DRAFTED else None)
        refuse_errors(inspection)
        drafts.append(prove.Draft(name, ref, inspection.source, inspection.checkpoint, inspection.spec))
    target = target_folder(drafts[0].spec, drafts[0].source, chosen.target)
    found = prove.bench(tuple(drafts), target, out, chosen, progress)
    if isinstance(found, run.Unfinished):
        raise SmokeError("the budget ended first", where=str(out), measured=f"{found.done} of {found.total} servers", expected="all", hint="call it again: it goes on from there")
    return found


def bench_analyze(folder: Path) -> BenchReport:
    """The summary of a run computed again from its raw rows. `RefusedError` when a file was changed, or when the stored summary differs in a single bit."""
    from speculators_convert.bench import store  # noqa: PLC0415

    return store.analyze(folder)
