"""The gate as a whole: look at a checkpoint, gather evidence and receipt, decide. The Python API of `gate` and `publish-check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from speculators_convert.api import look
from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.container.json_lines import line_of
from speculators_convert.digest import checkpoint_digest
from speculators_convert.errors import SourceError
from speculators_convert.findings import Finding, Problem
from speculators_convert.gate.codes import reason
from speculators_convert.gate.decision import Case, ReceiptState, decide, unreadable
from speculators_convert.gate.evidence_files import read_evidence
from speculators_convert.gate.verdict import GateReport, Place, Reason, Requirement
from speculators_convert.model import Model
from speculators_convert.policies import GatePolicy, load_policy
from speculators_convert.publish import upload
from speculators_convert.report.base import facts, printable
from speculators_convert.results.smoke import CheckpointDigest
from speculators_convert.rewrite import receipt
from speculators_convert.sources import Source, open_source
from speculators_convert.version import __version__

Note = Callable[[str], None]


def silent(text: str) -> None:
    """Shows nothing."""
    del text


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What to judge, and by which policy. `today` decides about waivers and the age of evidence."""

    reference: str
    policy: str = "default"
    target: str | None = None
    evidence: tuple[str, ...] = ()
    folder_is_uploaded: bool = False
    today: date | None = None


def gate(request: GateRequest, *, note: Note = silent) -> GateReport:
    """The verdict. A checkpoint that cannot be read is the outcome `unreadable`; a policy that cannot be used is an exception."""
    policy = load_policy(request.policy)
    shown = _shown(request.reference)
    try:
        return _judge(request, policy, shown, note)
    except SourceError as error:
        return unreadable(shown, policy.name, error)


def _judge(request: GateRequest, policy: GatePolicy, shown: str, note: Note) -> GateReport:
    inspection = look(request.reference, target=request.target, tp=policy.tp_degrees, deep=True)
    evidence = tuple(read_evidence(path) for path in request.evidence)
    digest = target_digest = None
    if any(item.result for item in evidence):
        note("computing SHA-256 of the checkpoint, to compare it with the evidence")
        digest = checkpoint_digest(inspection.source, inspection.checkpoint)
        target_digest = _target_digest(request.target, note)
    case = Case(
        reference=shown,
        report=inspection.report,
        today=request.today or datetime.now(tz=UTC).date(),
        target=request.target,
        digest=digest,
        target_digest=target_digest,
        evidence=evidence,
        receipt=receipt_state(request.reference, inspection.checkpoint),
        folder=_folder(request.reference, inspection.checkpoint) if request.folder_is_uploaded else (),
    )
    places = tuple(place_of(finding, inspection.source, inspection.checkpoint) for finding in inspection.report.findings)
    return decide(case, policy).model_copy(update={"places": tuple(_under(place, shown) for place in places)})


def _target_digest(reference: str | None, note: Note) -> CheckpointDigest | None:
    if reference is None:
        return None
    note("computing SHA-256 of the target")
    source = open_source(reference)
    return checkpoint_digest(source, collect(source, payloads=()))


def receipt_state(reference: str, checkpoint: Checkpoint) -> ReceiptState:
    """Whether the receipt in the folder still holds. Documents beside the checkpoint may change after the rewrite."""
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        if checkpoint.file(receipt.RECEIPT_NAME) is None:
            return ReceiptState(present=False)
        return ReceiptState(present=True, problems=("the receipt of a remote checkpoint cannot be verified: download the folder and run the gate on it",))
    if not (folder / receipt.RECEIPT_NAME).exists():
        return ReceiptState(present=False)
    try:
        answer = verify(folder)
    except SourceError as error:
        return ReceiptState(present=True, problems=(str(error),))
    return ReceiptState(present=True, problems=tuple(f"{item.file}: {item.message}" for item in answer.problems))


class Verification(Model):
    """What `verify` writes: each file whose bytes are not the receipt's."""

    schema_version: Literal["1"] = "1"
    tool_version: str
    folder: str
    holds: bool
    files: int
    problems: tuple[Reason, ...]
    changed_documents: tuple[str, ...] = Field(default=(), description="Documents that came or changed after the rewrite; they are no part of the checkpoint")

    def text(self) -> str:
        """One line for the verdict and two for each problem."""
        shown = printable(self)
        lines = [f"{'OK' if self.holds else 'CHANGED'}  {shown.folder}: {self.files} files in the receipt"]
        lines += [f"  {item.file}: {item.message}\n      {facts(item.measured, item.expected)}" for item in shown.problems]
        lines += [f"  note: {name} is a document and may change" for name in shown.changed_documents]
        return "\n".join(lines) + "\n"


def verify(folder: Path) -> Verification:
    """Recompute each digest of the receipt in `folder`; `SourceError` when there is none."""
    stated = receipt.read(folder)
    problems = receipt.verify(folder, stated)
    documents = tuple(problem.subject for problem in problems if _is_document(problem))
    rows = tuple(
        reason(
            "GATE021",
            f"{problem.message}{f' ({problem.subject})' if problem.file else ''}",
            measured=problem.measured,
            expected=problem.expected,
            file=problem.file or problem.subject,
        )
        for problem in problems
        if not _is_document(problem)
    )
    return Verification(tool_version=__version__, folder=str(folder), holds=not rows, files=len(stated.subject), problems=rows, changed_documents=documents)


def _is_document(problem: Problem) -> bool:
    return upload.is_documentation(problem.file or problem.subject)


def place_of(finding: Finding, source: Source, checkpoint: Checkpoint) -> Place | None:
    """The line of a JSON document or the bytes of a tensor that a finding is about, as far as it says."""
    info = checkpoint.file(finding.file) if finding.file else None
    if info is None:
        return None
    if info.refused:
        return Place(file=info.path)
    if finding.file in checkpoint.documents:
        text = source.read(info.path, 0, info.size_bytes).decode("utf-8", "replace")
        return Place(file=info.path, line=line_of(text, finding.pointer))
    found = checkpoint.tensors.get(finding.subject)
    if found is not None and found.file == finding.file:
        return Place(file=info.path, byte_offset=found.tensor.start, byte_length=found.tensor.stop - found.tensor.start)
    return Place(file=info.path, line=1 if info.path.endswith((".json", ".md", ".py")) else None)


def _under(place: Place | None, reference: str) -> Place | None:
    return place.model_copy(update={"file": f"{reference.rstrip('/')}/{place.file}"}) if place else None


def _folder(reference: str, checkpoint: Checkpoint) -> tuple[Requirement, ...]:
    """What else the folder must satisfy when it is uploaded as it is."""
    root = Path(reference).expanduser()
    if not root.is_dir():
        raise SourceError("publish-check looks at a folder on this machine", where=reference, hint="use gate for a repository on the Hub")
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    card = root / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else None
    return upload.requirements(names, text, checkpoint)


def _shown(reference: str) -> str:
    """A folder below the working folder as a relative path, so that reports of one repository point into it."""
    path = Path(reference).expanduser()
    if not path.is_dir():
        return reference
    resolved, here = path.resolve(), Path.cwd().resolve()
    return resolved.relative_to(here).as_posix() if resolved.is_relative_to(here) and resolved != here else str(path)
