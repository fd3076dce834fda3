"""Smoke results on disk, as evidence: read whole, or with the reason why they cannot count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from speculators_convert.container import strict_json
from speculators_convert.results.smoke import SmokeResult
from speculators_convert.sources.bounded import read_bounded

SCHEMA_VERSION = "1"
MAX_EVIDENCE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a file is no evidence: `missing`, `unreadable` or `schema` (written for another schema version)."""

    kind: str
    message: str
    measured: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One file that was passed as evidence; exactly one of `result` and `fault` is there."""

    path: str
    result: SmokeResult | None = None
    fault: Fault | None = None


def read_evidence(path: str) -> EvidenceFile:
    """The smoke result in a file, or why there is none."""
    file = Path(path)
    if not file.exists():
        return EvidenceFile(path, fault=Fault("missing", "the evidence file does not exist"))
    try:
        data = read_bounded(file, MAX_EVIDENCE_BYTES)
    except OSError as error:
        return EvidenceFile(path, fault=Fault("unreadable", f"the evidence file cannot be read ({error.strerror})"))
    return parse_evidence(data, path)


def parse_evidence(data: bytes, path: str) -> EvidenceFile:
    """The smoke result in a JSON text, or why there is none."""
    try:
        document = strict_json.loads(data)
    except ValueError as error:
        return EvidenceFile(path, fault=Fault("unreadable", "the evidence is not JSON", str(error)[:200], "a smoke result"))
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, str) and version != SCHEMA_VERSION:
        return EvidenceFile(path, fault=Fault("schema", "the evidence was written for another schema version", version[:20], SCHEMA_VERSION))
    try:
        return EvidenceFile(path, result=SmokeResult.model_validate(document))
    except ValidationError as error:
        first = error.errors()[0]
        return EvidenceFile(
            path,
            fault=Fault("unreadable", "the file is not a smoke result", f"/{'/'.join(map(str, first['loc']))}: {first['msg']}"[:200], "what `spec-convert smoke --out` writes"),
        )
