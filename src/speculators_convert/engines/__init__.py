"""What each engine version does with a draft. An engine version is a data file; this package only reads and applies them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.engines.facts import facts, target_name, tp_fits
from speculators_convert.engines.rules import Addition, Engine, Facts, Rule, Ruling
from speculators_convert.findings import EngineVerdict
from speculators_convert.sources import FileInfo
from speculators_convert.spec import DraftSpec
from speculators_convert.target.pairing import Pairing


@cache
def engines() -> tuple[Engine, ...]:
    """All engine files of the package, by name and version."""
    found = [Engine.model_validate_json(item.read_text(encoding="utf-8")) for item in files(__name__).iterdir() if item.name.endswith(".json")]
    return tuple(sorted(found, key=lambda item: (item.engine.lower(), item.version)))


def verdicts(spec: DraftSpec, checkpoint: Checkpoint, source_name: str, tp_degrees: tuple[int, ...] = (), *, pairing: Pairing | None = None) -> tuple[EngineVerdict, ...]:
    """The verdict of each engine version on this draft, with the rule that decides and the command to run."""
    known = facts(spec, checkpoint, tp_degrees, pairing)
    fitting = [tp for tp in tp_degrees if tp_fits(spec, tp)]
    case = _Case(known, spec, source_name, target_name(spec, pairing), max(fitting, default=1), checkpoint.files)
    return tuple(_verdict(engine, case) for engine in engines())


@dataclass(frozen=True, slots=True)
class _Case:
    """One draft: its facts, its name, and the highest requested degree that its heads divide by."""

    known: Facts
    spec: DraftSpec
    source_name: str
    target: str
    tp: int
    files: tuple[FileInfo, ...]


def _verdict(engine: Engine, case: _Case) -> EngineVerdict:
    known = case.known
    met = [rule for rule in engine.rules if rule.when.holds(known)]
    met = [rule for rule in met if rule.overrides] or met
    ruling = max((rule.verdict for rule in met), key=lambda item: item.rank, default=Ruling.LOADS)
    met.sort(key=lambda rule: -rule.verdict.rank)
    reasons = [_reason(rule, known) for rule in met if rule.verdict in (ruling, Ruling.LOADS)]
    refused = any(rule.refuses for rule in met if rule.verdict is Ruling.UNSUPPORTED)
    servable = ruling is not Ruling.UNSUPPORTED
    if servable:
        reasons += [f"{item.words}: {item.reason.format_map(known)} [{item.source}]" for item in _added(engine, known)]
    launch = _launch(engine, case, ruling) if servable else ""
    return EngineVerdict(engine=engine.engine, version=engine.version, verdict=ruling.value, refused=refused, reasons=tuple(reasons), launch=launch)


def _reason(rule: Rule, known: Facts) -> str:
    doubt = "" if rule.refuses else "not known to be served: "
    return f"{rule.decides.format_map(known)}: {doubt}{rule.reason.format_map(known)} [{rule.source}]"


def _added(engine: Engine, known: Facts) -> list[Addition]:
    return [item for item in engine.additions if item.when.holds(known)]


def _launch(engine: Engine, case: _Case, ruling: Ruling) -> str:
    draft, target, lines = case.source_name, case.target, []
    step = next((item for item in engine.preparations if item.when is None or item.when.holds(case.known)), None)
    if ruling is Ruling.NEEDS_NORMALIZE and step is not None:
        draft = f"{case.source_name.rstrip('/')}-{step.layout}"
        extra = ["--target", target] if step.needs_target else []
        lines.append(shlex.join(["spec-convert", "normalize", case.source_name, "--layout", step.layout, *extra, "--out", draft]))
    added = _added(engine, case.known)
    launch = next(item for item in engine.launches if item.when is None or item.when.holds(case.known))
    gguf = [info.path for info in case.files if info.path.endswith(".gguf")]
    values = {
        "{target}": target,
        "{target_gguf}": f"{target}.gguf",
        "{draft}": draft,
        "{draft_json}": json.dumps(draft),
        "{gguf}": f"{draft}/{gguf[0]}" if gguf else f"{draft}.gguf",
        "{gamma}": str(case.spec.gamma),
        "{tp}": str(case.tp),
    }
    if launch.before:
        lines.append(_filled(launch.before, {name: shlex.quote(value) for name, value in values.items()}))
    words = [*launch.words, *(engine.tensor_parallel if case.tp > 1 else ()), *(word for item in added for word in item.append)]
    environment = [item.environment for item in added if item.environment]
    lines.append(" ".join([*environment, shlex.join(_filled(word, values) for word in words)]))
    return "\n".join(lines)


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


__all__ = ["Engine", "engines", "facts", "verdicts"]
