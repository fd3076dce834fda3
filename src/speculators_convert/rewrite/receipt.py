"""What a rewrite proves: a receipt in the shape of an in-toto Statement v1, and `verify`, which recomputes its digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from speculators_convert.errors import SourceError
from speculators_convert.findings import Problem
from speculators_convert.model import Model
from speculators_convert.rewrite.plan import Dropped, Input, InputFile

RECEIPT_NAME = "spec-convert.receipt.json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:spec-convert:rewrite:v1"
_READ_BYTES = 4 * 1024 * 1024


class Digest(Model):
    """A digest that states its algorithm."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Subject(Model):
    """One output file."""

    name: str
    digest: Digest


class TensorDigest(Model):
    """One output tensor: where its data lies, its digest, and whether it was copied or computed."""

    name: str
    role: str
    file: str
    start: int
    stop: int
    dtype: str
    shape: tuple[int, ...]
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    made: Literal["copied", "computed"]
    sources: tuple[str, ...]
    why: str = ""


class Rewrite(Model):
    """How the output was made."""

    tool: str
    tool_version: str
    layout: str
    plan_sha256: str
    source: Input
    target: Input | None = None
    inputs: tuple[InputFile, ...] = Field(description="Files of the source with the digests that it publishes")
    tensors: tuple[TensorDigest, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


class Receipt(Model):
    """An in-toto Statement v1 about the files of one output folder."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    subject: tuple[Subject, ...]
    predicateType: Literal["urn:spec-convert:rewrite:v1"] = PREDICATE_TYPE  # noqa: N815 (in-toto's spelling)
    predicate: Rewrite

    def document(self) -> dict[str, object]:
        """The JSON value as it is written."""
        return self.model_dump(mode="json", by_alias=True)


def read(folder: Path) -> Receipt:
    """The receipt in `folder`; `SourceError` when there is none or it is not one."""
    path = folder / RECEIPT_NAME
    try:
        return Receipt.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SourceError(f"cannot read the receipt ({error.strerror})", where=str(path), hint="only folders written by spec-convert normalize have one") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise SourceError(
            "the receipt is not valid", where=str(path), measured=f"{'/'.join(map(str, first['loc']))}: {first['msg']}", expected="a receipt as normalize writes it"
        ) from error


def verify(folder: Path, receipt: Receipt | None = None) -> tuple[Problem, ...]:
    """What in `folder` is not as its receipt says; empty when each byte is."""
    receipt = receipt or read(folder)
    stated = {subject.name: subject.digest.sha256 for subject in receipt.subject}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {RECEIPT_NAME}
    problems = [Problem("the receipt names a file that is not there", subject=name, measured="missing", expected=stated[name][:16]) for name in sorted(set(stated) - present)]
    problems += [Problem("a file that the receipt does not know", subject=name, measured="present", expected="only files of the rewrite") for name in sorted(present - set(stated))]
    for name in sorted(present & set(stated)):
        found = _sha256(folder / name, 0, None)
        if found != stated[name]:
            problems.append(Problem("the file was changed after the rewrite", subject=name, measured=found, expected=stated[name]))
            problems.extend(_tensor_problems(folder, receipt, name))
    return tuple(problems)


def _tensor_problems(folder: Path, receipt: Receipt, file: str) -> list[Problem]:
    """Which tensors of a changed file differ."""
    checked = [(tensor, _sha256(folder / file, tensor.start, tensor.stop)) for tensor in receipt.predicate.tensors if tensor.file == file]
    return [
        Problem("the tensor's bytes differ from the receipt", subject=tensor.name, file=file, measured=found, expected=tensor.sha256)
        for tensor, found in checked
        if found != tensor.sha256
    ]


def _sha256(path: Path, start: int, stop: int | None) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            left = stop - start if stop is not None else None
            while block := file.read(_READ_BYTES if left is None else min(left, _READ_BYTES)):
                digest.update(block)
                left = None if left is None else left - len(block)
    except OSError as error:
        raise SourceError(f"cannot read the file ({error.strerror})", where=str(path)) from error
    return digest.hexdigest()
