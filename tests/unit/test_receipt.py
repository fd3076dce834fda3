"""A receipt finds each change, and one that cannot be read is a clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speculators_convert.errors import SourceError
from speculators_convert.rewrite import receipt
from speculators_convert.rewrite.plan import Copy, Input, InputFile, OutputFile, OutputTensor, RewritePlan, Text
from speculators_convert.rewrite.receipt import RECEIPT_NAME
from speculators_convert.sources import MemorySource
from speculators_convert.write.execution import execute


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tensor = OutputTensor(name="fc.weight", role="fc.weight", dtype="U8", shape=(6,), start=2, stop=8, made="copied", sources=("draft:w:fc.weight",))
    files = (
        OutputFile(path="config.json", size_bytes=2, segments=(Text(text="{}"),)),
        OutputFile(path="w", size_bytes=8, segments=(Text(text="hh"), Copy(file="w", start=1, stop=7)), tensors=(tensor,)),
    )
    plan = RewritePlan(layout="test", source=Input(kind="memory", name="m", revision="c0ffee"), inputs=(InputFile(path="w", size_bytes=9, sha256="ab" * 32),), files=files)
    execute(plan, MemorySource({"w": b"123456789"}), tmp_path / "out")
    return tmp_path / "out"


def test_an_untouched_folder_verifies(folder: Path) -> None:
    assert receipt.verify(folder) == ()


def test_a_changed_byte_names_file_and_tensor(folder: Path) -> None:
    (folder / "w").write_bytes(b"hh23456X")
    assert [(problem.subject, problem.message) for problem in receipt.verify(folder)] == [
        ("w", "the file was changed after the rewrite"),
        ("fc.weight", "the tensor's bytes differ from the receipt"),
    ]


def test_missing_and_added_files_are_named(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "more.txt").write_text("x")
    assert [problem.subject for problem in receipt.verify(folder)] == ["config.json", "more.txt"]


def test_it_has_the_shape_of_an_in_toto_statement(folder: Path) -> None:
    document = json.loads((folder / RECEIPT_NAME).read_text())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert set(document) == {"_type", "subject", "predicateType", "predicate"}
    assert document["subject"][0] == {"name": "config.json", "digest": {"sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}
    assert document["predicate"]["source"] == {"kind": "memory", "name": "m", "revision": "c0ffee"}
    assert document["predicate"]["inputs"][0]["sha256"] == "ab" * 32


@pytest.mark.parametrize("text", ["", "[]", '{"_type": "other"}'])
def test_a_receipt_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / RECEIPT_NAME).write_text(text)
    with pytest.raises(SourceError, match="the receipt is not valid"):
        receipt.read(folder)


def test_no_receipt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read the receipt"):
        receipt.read(tmp_path)
