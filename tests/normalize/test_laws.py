"""Laws over all fixture drafts and over synthetic ones: copies are exact, a second pass changes nothing, a way back is a way back."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from normalizing import Written, normalize_draft, plan_draft, read_draft, synthetic_draft
from safetensors import safe_open

from speculators_convert.rewrite import receipt
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.receipt import RECEIPT_NAME
from speculators_convert.sources import MemorySource, open_source


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != RECEIPT_NAME}


def tensor_digests(written: Written) -> dict[str, str]:
    return {tensor.name: tensor.sha256 for tensor in written.receipt.predicate.tensors}


def check_copies(written: Written, source: Path) -> None:
    """Each copied tensor equals the source's, read by the safetensors library itself."""
    read = read_draft(source)
    for tensor in written.receipt.predicate.tensors:
        ref = read.spec.tensors[tensor.role]
        with safe_open(written.folder / tensor.file, "pt") as ours, safe_open(source / ref.file, "pt") as theirs:
            assert ours.get_tensor(tensor.name).equal(theirs.get_tensor(ref.name)) or _bits(ours, tensor.name) == _bits(theirs, ref.name)
        assert hashlib.sha256(read.source.read(ref.file, ref.start, ref.stop)).hexdigest() == tensor.sha256


def _bits(opened: object, name: str) -> bytes:
    return opened.get_tensor(name).contiguous().view(torch.uint8).numpy().tobytes()  # type: ignore[attr-defined]


def test_each_fixture_is_copied_byte_for_byte_and_the_second_pass_changes_nothing(draft: Path, tmp_path: Path) -> None:
    first = normalize_draft(draft, tmp_path / "once")
    second = normalize_draft(first.folder, tmp_path / "twice")
    check_copies(first, draft)
    assert bytes_of(first.folder) == bytes_of(second.folder)
    assert receipt.verify(first.folder) == ()


def test_the_same_command_gives_the_same_bytes_receipt_included(draft: Path, tmp_path: Path) -> None:
    first, second = normalize_draft(draft, tmp_path / "a"), normalize_draft(draft, tmp_path / "b")
    assert (first.folder / RECEIPT_NAME).read_bytes() == (second.folder / RECEIPT_NAME).read_bytes()


drafts = st.builds(
    synthetic_draft,
    head=st.sampled_from(["vanilla", "gated", "rnn"]), sampled=st.booleans(), reduced=st.booleans(), confidence=st.booleans(),
    layers=st.integers(1, 12), hidden=st.sampled_from([8, 16]), vocabulary=st.integers(10, 40), rank=st.integers(1, 7), seed=st.integers(0, 10**6),
)  # fmt: skip


@given(drafts)
def test_a_plan_covers_its_files_accounts_for_the_source_and_survives_json(files: dict[str, bytes]) -> None:
    read = read_draft(MemorySource(files))
    plan = plan_draft(read, "speculators")
    for file in plan.files:
        assert sum(segment.size_bytes for segment in file.segments) == file.size_bytes
        ends = [(tensor.start, tensor.stop) for tensor in file.tensors]
        assert all(left[1] == right[0] for left, right in pairwise(ends))
    assert {tensor.role for tensor in plan.tensors()} == set(read.spec.tensors)
    assert {item.name for item in plan.dropped if item.kind == "file"} == {"config.py", "t2d.npy"}
    assert RewritePlan.model_validate_json(plan.model_dump_json()) == plan


@settings(max_examples=30)
@given(drafts, st.integers(1, 5000))
def test_no_chunk_size_changes_a_byte(files: dict[str, bytes], chunk_bytes: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        usual = normalize_draft(MemorySource(files), folder / "usual")
        odd = normalize_draft(MemorySource(files), folder / "odd", chunk_bytes=chunk_bytes)
        assert bytes_of(usual.folder) == bytes_of(odd.folder)
        assert usual.receipt == odd.receipt
        for tensor in usual.receipt.predicate.tensors:
            assert hashlib.sha256((usual.folder / tensor.file).read_bytes()[tensor.start : tensor.stop]).hexdigest() == tensor.sha256
    finally:
        shutil.rmtree(folder)


@given(drafts)
def test_every_tensor_starts_at_a_multiple_of_its_element_size(files: dict[str, bytes]) -> None:
    width = {"I64": 8, "BF16": 2, "BOOL": 1}
    plan = plan_draft(read_draft(MemorySource(files)), "speculators")
    assert all(tensor.start % width[tensor.dtype] == 0 for tensor in plan.tensors())


def test_a_sharded_source_becomes_one_file_with_the_same_tensors(fixtures_folder: Path, tmp_path: Path) -> None:
    sharded = normalize_draft(fixtures_folder / "library/0.9.0/sharded", tmp_path / "out")
    assert sorted(path.name for path in sharded.folder.iterdir()) == ["config.json", "model.safetensors", RECEIPT_NAME]
    check_copies(sharded, fixtures_folder / "library/0.9.0/sharded")


def test_a_large_draft_is_split_with_an_index_and_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculators_convert.layouts.parts.MAX_SHARD_BYTES", 700)
    split = normalize_draft(MemorySource(synthetic_draft(layers=3)), tmp_path / "split")
    shards = sorted(split.folder.glob("model-*.safetensors"))
    assert len(shards) > 3
    monkeypatch.undo()
    whole = normalize_draft(split.folder, tmp_path / "whole")
    straight = normalize_draft(MemorySource(synthetic_draft(layers=3)), tmp_path / "straight")
    assert bytes_of(whole.folder) == bytes_of(straight.folder)
    names = {name for shard in shards for name in safe_open(shard, "pt").keys()}  # noqa: SIM118 (safe_open is no mapping)
    assert names == set(read_draft(open_source(str(split.folder))).spec.tensors)
    assert np.all([tensor.stop > tensor.start for tensor in split.plan.tensors()])
