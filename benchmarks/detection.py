"""Mutation score of the checks: every mutation on every good fixture on which it makes sense, and false alarms on the untouched ones.

    python -m benchmarks.detection [--json]

Prints, per need (file alone, with the target, with the target and all weights): caught, missed, found with another code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.draft_editor import Draft, NotApplicable, traits
from benchmarks.mutations import DEEP, EXCLUDED, FILE, MUTATIONS, TARGET, Mutation

from speculators_convert import checks, engines
from speculators_convert.checkpoint import collect
from speculators_convert.findings import Finding
from speculators_convert.formats import detect
from speculators_convert.model import Severity
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.spec import Settings
from speculators_convert.target.pairing import collect_pairing
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.values import scan, shared_rows

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


@dataclass(frozen=True, slots=True)
class Fixture:
    """A good checkpoint and the target that belongs to it."""

    folder: Path
    target: Path | None

    @property
    def name(self) -> str:
        """Path below fixtures/."""
        return self.folder.relative_to(FIXTURES).as_posix()


def good_fixtures() -> list[Fixture]:
    """Trained drafts, library saves, and other packagings, each with its target."""
    found = [Fixture(item.parent, FIXTURES / "trained/tiny-target") for item in sorted(FIXTURES.glob("trained/*/config.json")) if item.parent.name != "tiny-target"]
    found += [Fixture(item.parent, FIXTURES / "library/target") for item in sorted(FIXTURES.glob("library/*/*/config.json"))]
    found += [Fixture(item.parent, None) for item in sorted(FIXTURES.glob("good/*/expected.json"))]
    return found


def findings(draft: Draft, target: Draft | Path | None = None, settings: Settings | None = None, *, deep: bool = False) -> tuple[Finding, ...]:
    """What the checks say of a draft in memory."""
    source, stated = MemorySource(draft.files()), settings or Settings()
    checkpoint = collect(source)
    detection = detect(checkpoint)
    reading = detection.format.read(checkpoint, stated) if detection.format else None
    spec, tables = (reading.spec, read_tables(checkpoint)) if reading else (None, None)
    pairing, values = None, scan(source, checkpoint) if deep else None
    if target is not None:
        opened = LocalSource(target) if isinstance(target, Path) else MemorySource(target.files())
        pairing = collect_pairing(source, spec, tables, opened, collect(opened))
        if values is not None and spec is not None and tables is not None:
            theirs = {role: item for role, item in (("lm_head.weight", pairing.head), ("embed_tokens.weight", pairing.embed)) if item is not None}
            values = replace(values, rows=shared_rows(source, spec.tensors, tables.targets(spec.d2t), opened, theirs))
    name = detection.format.name if detection.format else None
    verdicts = engines.verdicts(spec, checkpoint, draft.name, draft.tp, pairing=pairing) if spec else None
    return checks.run(checks.Evidence(checkpoint, stated, draft.tp, name, reading, spec, tables, pairing, values, verdicts))[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutation on one fixture."""

    mutation: Mutation
    fixture: str
    found: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """caught, missed or wrong code."""
        if set(self.found) & set(self.mutation.codes):
            return "caught"
        return "wrong code" if self.found else "missed"


def _key(item: Finding) -> tuple[str, ...]:
    return item.code, item.message, item.subject, item.measured


def run(needs: tuple[str, ...]) -> Iterator[Outcome]:
    """Each mutation of these needs on each fixture that it fits."""
    for fixture in good_fixtures():
        draft = Draft.load(fixture.folder)
        words = traits(draft) | ({"paired"} if fixture.target else set())
        untouched = {_key(item) for item in findings(draft, fixture.target, deep=True)}
        for mutation in MUTATIONS:
            if mutation.needs not in needs or not set(mutation.traits) <= words or (mutation.needs == TARGET and fixture.target is None):
                continue
            try:
                mutated = draft.apply(mutation.edits)
                found = findings(mutated, fixture.target if mutation.needs != FILE else None, deep=mutation.needs == DEEP)
            except NotApplicable:
                continue
            yield Outcome(mutation, fixture.name, tuple(sorted({item.code for item in found if _key(item) not in untouched})))


def false_alarms() -> list[tuple[str, Finding]]:
    """Warnings and errors on untouched fixtures, with their target and all weights read."""
    return [(fixture.name, item) for fixture in good_fixtures() for item in findings(Draft.load(fixture.folder), fixture.target, deep=True) if item.severity is not Severity.INFO]


def main() -> int:
    """Print the score; exit 1 when it is under the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    outcomes, alarms = list(run((FILE, TARGET, DEEP))), false_alarms()
    score = {}
    for need in (FILE, TARGET, DEEP):
        chosen = [item for item in outcomes if item.mutation.needs == need]
        count = {word: sum(item.verdict == word for item in chosen) for word in ("caught", "missed", "wrong code")}
        score[need] = {"mutations": len({item.mutation.name for item in chosen}), "runs": len(chosen), **count}
    unused = sorted({item.name for item in MUTATIONS} - {item.mutation.name for item in outcomes})
    failed = [item for item in outcomes if item.verdict != "caught"]
    if as_json:
        print(
            json.dumps(
                {"score": score, "false_alarms": len(alarms), "not_applicable": unused, "failed": [[item.mutation.name, item.fixture, item.found] for item in failed]}, indent=2
            )
        )
    else:
        for need, row in score.items():
            print(f"{need:<7}" + "  ".join(f"{word} {count}" for word, count in row.items()))
        print(f"false alarms on {len(good_fixtures())} untouched fixtures: {len(alarms)}")
        for item in failed:
            print(f"  {item.verdict}: {item.mutation.name} (expected {' or '.join(item.mutation.codes)}) on {item.fixture}: found {', '.join(item.found) or 'nothing'}")
        for name, finding in alarms:
            print(f"  false alarm on {name}: {finding.code} {finding.message}")
        print(f"mutations that fit no fixture: {', '.join(unused) or 'none'}")
        print(f"taken out, with reasons: {', '.join(item.name for item in EXCLUDED)}")
    caught = score[FILE]["caught"]
    return int(bool(alarms) or caught < 0.95 * score[FILE]["runs"] or any(score[need]["caught"] != score[need]["runs"] for need in (TARGET, DEEP)))


if __name__ == "__main__":
    sys.exit(main())
