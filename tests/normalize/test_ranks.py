"""Heads split over ranks: each row on one rank, a byte-exact whole again, and a refusal of ranks that do not fit together."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from normalizing import FIXTURES, clean_copy, normalize_draft, read_draft, synthetic_draft
from safetensors import safe_open

from speculators_convert.checkpoint import collect
from speculators_convert.diff import Side, compare
from speculators_convert.errors import UsageError
from speculators_convert.rewrite import receipt
from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME, RankManifest, row_ranges
from speculators_convert.rewrite.ranks import AssembledSource, assembled
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.tensor_digests import tensor_digests


def whole(folder: Path) -> AssembledSource:
    source = assembled(LocalSource(folder))
    assert isinstance(source, AssembledSource)
    return source


@given(st.integers(1, 4000), st.integers(1, 16))
def test_ranks_cover_the_rows_once_and_have_equal_heights(rows: int, tp: int) -> None:
    ranges = row_ranges(rows, tp)
    assert [row for first, stop, _ in ranges for row in range(first, stop)] == list(range(rows))
    assert len({stop - first + padding for first, stop, padding in ranges}) == 1
    assert sum(padding for _, _, padding in ranges) < tp * (1 + rows // tp)


splits = st.builds(
    synthetic_draft, head=st.sampled_from(["vanilla", "gated", "rnn"]), reduced=st.booleans(), vocabulary=st.integers(4, 60), rank=st.integers(1, 5), seed=st.integers(0, 10**6)
)


@settings(max_examples=40)
@given(splits, st.integers(1, 16))
def test_a_split_draft_reads_as_the_whole_one(files: dict[str, bytes], tp: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        plain = normalize_draft(MemorySource(files), folder / "plain")
        split = normalize_draft(MemorySource(files), folder / "split", tp=tp)
        source = whole(split.folder)
        again = read_draft(source)
        assert tensor_digests(source, again.spec) == {tensor.role: tensor.sha256 for tensor in plain.receipt.predicate.tensors}
        joined = normalize_draft(source, folder / "joined")
        assert (joined.folder / "model.safetensors").read_bytes() == (plain.folder / "model.safetensors").read_bytes()
        assert (joined.folder / "config.json").read_bytes() == (plain.folder / "config.json").read_bytes()
        assert receipt.verify(split.folder) == ()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("tp", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("layout", ["speculators", "sglang-dense", "sglang", "deepspec", "specforge"])
def test_each_layout_can_be_split(layout: str, tp: int, tmp_path: Path) -> None:
    name = "library/0.9.0/gated-anchor-reduced" if layout == "sglang-dense" else "library/0.9.0/gated-anchor-full"
    source, target = clean_copy(FIXTURES / name, tmp_path / "draft"), FIXTURES / "library/target"
    plain = normalize_draft(source, tmp_path / "plain", layout, target=target)
    split = normalize_draft(source, tmp_path / "split", layout, target=target, tp=tp)
    joined = normalize_draft(whole(split.folder), tmp_path / "joined", "sglang" if layout == "sglang-dense" else layout, target=target)
    assert (joined.folder / "model.safetensors").read_bytes() == (plain.folder / "model.safetensors").read_bytes()
    left, right = read_draft(plain.folder), read_draft(whole(split.folder))
    sides = [Side(read.spec, read_tables(read.checkpoint), tensor_digests(read.source, read.spec)) for read in (left, right)]
    assert compare(*sides).same


def test_the_manifest_names_rows_padding_and_digest_of_each_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = clean_copy(FIXTURES / "library/0.9.0/vanilla-anchor-reduced", tmp_path / "draft")
    split = normalize_draft(source, tmp_path / "split", tp=5)
    manifest = RankManifest.model_validate_json((split.folder / MANIFEST_NAME).read_bytes())
    assert manifest.tp == 5
    assert [tensor.name for tensor in manifest.tensors] == ["lm_head.weight", "markov_head.markov_w2.weight"]
    head = manifest.tensors[0]
    assert [(item.first_row, item.stop_row, item.padding_rows) for item in head.slices] == [(0, 10, 0), (10, 20, 0), (20, 30, 0), (30, 40, 0), (40, 48, 2)]
    for item in head.slices:
        with safe_open(split.folder / item.file, "pt") as opened:
            stored = opened.get_tensor("lm_head.weight")
            assert opened.metadata() == {"format": "pt", "tp": "5", "rank": str(item.rank)}
        assert list(stored.shape) == [10, 32]
        assert stored[10 - item.padding_rows :].eq(0).all()
        tensor = next(found for found in split.receipt.predicate.tensors if (found.file, found.name) == (item.file, "lm_head.weight"))
        data = (split.folder / item.file).read_bytes()[tensor.start : tensor.stop]
        assert item.sha256 == hashlib.sha256(data).hexdigest()


def test_a_split_of_a_sharded_draft_keeps_a_sound_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculators_convert.layouts.parts.MAX_SHARD_BYTES", 700)
    split = normalize_draft(MemorySource(synthetic_draft(layers=3)), tmp_path / "split", tp=3)
    monkeypatch.undo()
    read = read_draft(whole(split.folder))
    assert read.checkpoint.faults == ()
    straight = normalize_draft(MemorySource(synthetic_draft(layers=3)), tmp_path / "straight")
    joined = normalize_draft(whole(split.folder), tmp_path / "joined")
    assert (joined.folder / "model.safetensors").read_bytes() == (straight.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("tp", [0, -1, 65])
def test_a_number_of_ranks_that_is_none_is_refused(tp: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tp"):
        normalize_draft(MemorySource(synthetic_draft()), tmp_path / "out", tp=tp)


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        document = json.loads((folder / MANIFEST_NAME).read_text())
        change(document)
        (folder / MANIFEST_NAME).write_text(json.dumps(document))

    return apply


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["tensors"][0]["slices"]
    return found


def from_another_split(folder: Path) -> None:
    other = normalize_draft(MemorySource(synthetic_draft(vocabulary=40)), folder.parent / "other", tp=2)
    (folder / "ranks/rank-00001-of-00004.safetensors").write_bytes((other.folder / "ranks/rank-00001-of-00002.safetensors").read_bytes())


DEFECTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "ranks overlap": (edit(lambda document: slices(document)[1].update(first_row=4)), "rank 1 starts at row 4, but the rank before it holds the rows below 5"),
    "a row is missing": (edit(lambda document: slices(document)[1].update(first_row=6)), "rows 5 to 5 are on no rank"),
    "the last rows are missing": (edit(lambda document: slices(document)[3].update(stop_row=19, padding_rows=1)), "the ranks hold 19 rows of 20"),
    "a rank is missing": (edit(lambda document: slices(document).pop()), "slices for ranks [0, 1, 2], tp is 4"),
    "a rank stands twice": (edit(lambda document: slices(document)[1].update(rank=0)), "slices for ranks [0, 0, 2, 3], tp is 4"),
    "another N in the manifest": (edit(lambda document: document.update(tp=5)), "tp is 5"),
    "a file of another split": (from_another_split, "was written as rank 1 of 2, the manifest wants rank 1 of 4"),
    "files swapped": (
        edit(lambda document: slices(document)[0].update(file="ranks/rank-00001-of-00004.safetensors")),
        "was written as rank 1 of 4, the manifest wants rank 0 of 4",
    ),
    "a rank file is gone": (lambda folder: (folder / "ranks/rank-00002-of-00004.safetensors").unlink(), "the file of rank 2 is not there"),
    "a rank file is cut": (lambda folder: (folder / "ranks/rank-00002-of-00004.safetensors").write_bytes(b"\0" * 4), "too short"),
    "a path that leaves": (edit(lambda document: slices(document)[0].update(file="../draft/model.safetensors")), "the file of rank 0 is not there"),
    "not JSON": (lambda folder: (folder / MANIFEST_NAME).write_text("{"), "the manifest is not valid"),
    "a wrong shape": (edit(lambda document: document["tensors"][0].update(shape=[20, 9])), "lm_head.weight should be BF16 [5, 9], found BF16 [5, 8]"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_ranks_that_do_not_fit_are_refused_with_the_reason(defect: str, tmp_path: Path) -> None:
    split = normalize_draft(MemorySource(synthetic_draft(vocabulary=40)), tmp_path / "split", tp=4)
    spoil, message = DEFECTS[defect]
    spoil(split.folder)
    checkpoint = collect(assembled(LocalSource(split.folder)))
    refused = [fault for fault in checkpoint.faults if fault.kind == "refused-file"]
    assert [fault.file for fault in refused] == [MANIFEST_NAME]
    assert message in refused[0].message


def test_a_draft_that_is_not_split_is_itself() -> None:
    source = MemorySource(synthetic_draft())
    assert assembled(source) is source
