"""A vocabulary chosen from counts: what must stay, how the rest is ranked, and that the draft's logits on it are unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from normalizing import FIXTURES, Read, clean_copy, normalize_draft, read_draft

from speculators_convert.checkpoint import collect
from speculators_convert.errors import RefusedError, SourceError, UsageError
from speculators_convert.layouts.base import Kept
from speculators_convert.smoke.engine import decode
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.sources import LocalSource
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.write.prepare import Reduction, kept_vocabulary
from speculators_convert.write.reduce import Always, always_kept, choose, count_tokens, from_mask

TRAINED = FIXTURES / "trained"
TARGET = TRAINED / "tiny-target"


@given(st.lists(st.integers(0, 50), min_size=30, max_size=30), st.integers(6, 29), st.sets(st.integers(0, 29), max_size=5))
def test_the_most_frequent_ids_are_kept_and_none_that_must_stay_is_lost(counts: list[int], size: int, must: set[int]) -> None:
    if not any(counts):
        counts[0] = 1
    kept = list(choose(np.array(counts), size, Always(special=frozenset(must))).target_ids)
    assert kept == sorted(set(kept))
    assert len(kept) == size
    assert must <= set(kept)
    free, left_out = set(kept) - must, set(range(30)) - set(kept)
    assert not free or not left_out or min(counts[item] for item in free) >= max(counts[item] for item in left_out)


def test_coverage_is_the_share_of_the_corpus() -> None:
    kept = choose(np.array([5, 0, 3, 2]), 2, Always(eos=frozenset({1})))
    assert kept.target_ids == [0, 1]
    assert kept.why == "0 byte, 0 special and 1 end tokens, the rest by count; 2 of 4 ids cover 5 of 10 corpus tokens (50.00%)"


def test_byte_special_and_end_tokens_of_a_real_tokenizer_stay() -> None:
    tokenizer = json.loads((TARGET / "tokenizer.json").read_text())
    always = always_kept(tokenizer, [{"eos_token_id": 0}, {"eos_token_id": [0, 5]}, {"eos_token_id": None}])
    vocabulary = tokenizer["model"]["vocab"]
    single = {index for token, index in vocabulary.items() if len(token) == 1}
    assert len(always.byte) == len(single & always.byte) == 256
    assert always.special == {item["id"] for item in tokenizer["added_tokens"] if item["special"]}
    assert always.eos == {0, 5}


def test_byte_fallback_tokens_count_as_bytes() -> None:
    assert always_kept({"model": {"vocab": {"<0x00>": 3, "<0xFF>": 9, "word": 1}}}, []).byte == {3, 9}


BAD_LINES = {
    "not json": "not JSON Lines",
    '{"text": "x"}': "holds no token ids",
    "[1, true]": "holds no token ids",
    "[1, 99]": "outside the target",
    "[-1]": "outside the target",
    "3": "holds no token ids",
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.items())
def test_a_bad_corpus_line_is_named(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        count_tokens(["[1, 2]", line], 10)
    assert error.value.where == "corpus:2"


def test_an_empty_corpus_and_impossible_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="holds no tokens"):
        count_tokens(["", "[]"], 10)
    for size in (1, 4, 9):
        with pytest.raises(UsageError, match="no vocabulary of that size"):
            choose(np.array([1, 2, 3, 4]), size, Always(special=frozenset({0, 1})))


@pytest.mark.parametrize("mask", [np.ones(4, np.uint8), np.zeros(4, bool), np.array([1, 1, 0]), np.array([2, 1, 0, 0]), np.array([0.5, 0, 0, 1]), np.array([0, 1, 1, 1])])
def test_a_mask_that_is_none_is_refused(mask: np.ndarray) -> None:
    with pytest.raises(UsageError):
        from_mask(mask, 4, Always(eos=frozenset({0})))


def kept_of(read: Read, what: str, file: Path | None) -> Kept:
    source = LocalSource(TARGET)
    return kept_vocabulary(Reduction(what, file), read.spec, source, collect(source))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def engine(read: Read, target: Target) -> Draft:
    return Draft(Reading(read.spec), read_weights(read.spec, read.source, Placement()), target.shared)


@pytest.mark.parametrize("start", ["speculators", "deepspec", "specforge"])
def test_a_reduced_draft_has_the_full_ones_logits_on_the_kept_ids(start: str, tmp_path: Path) -> None:
    """Also from a mask file, which gives the same draft."""
    source = clean_copy(TRAINED / "tiny-anchor-full-vanilla", tmp_path / "draft")
    full = read_draft(normalize_draft(source, tmp_path / "full", start, target=TARGET).folder)
    kept = kept_of(full, "600", TRAINED / "texts.jsonl")
    written = normalize_draft(tmp_path / "full", tmp_path / "reduced", target=TARGET, kept=kept)
    reduced = read_draft(written.folder)
    assert reduced.spec.draft_vocab_size == 600
    tables = read_tables(reduced.checkpoint)
    ids = tables.targets(reduced.spec.d2t)
    assert ids is not None
    assert ids.tolist() == list(kept.target_ids)
    members = tables.members()
    assert members is not None
    assert members.tolist() == ids.tolist()
    assert any("cover" in note and "corpus tokens" in note for note in written.receipt.predicate.notes)
    target = load_target(TARGET, full.spec.target_layer_ids or (), Placement())
    generator = torch.Generator().manual_seed(1)
    hidden, previous = torch.randn(4, 6, 128, generator=generator), torch.randint(0, 1024, (4, 6), generator=generator)
    wide, narrow = (decode.score(engine(read, target), hidden, previous) for read in (full, reduced))
    assert torch.allclose(wide[..., torch.from_numpy(np.array(ids))], narrow, atol=1e-5)
    np.save(tmp_path / "t2d.npy", tables.t2d.astype(bool) if tables.t2d is not None else np.zeros(0))
    again = normalize_draft(tmp_path / "full", tmp_path / "again", target=TARGET, kept=kept_of(full, str(tmp_path / "t2d.npy"), None))
    assert (again.folder / "model.safetensors").read_bytes() == (written.folder / "model.safetensors").read_bytes()


def test_a_draft_without_a_head_takes_the_targets_rows(tmp_path: Path) -> None:
    source = clean_copy(TRAINED / "tiny-anchor-full-vanilla", tmp_path / "draft")
    read = read_draft(source)
    written = normalize_draft(source, tmp_path / "out", target=TARGET, kept=kept_of(read, "700", TRAINED / "texts.jsonl"), tp=3)
    assert {source for tensor in written.plan.tensors() if tensor.name == "lm_head.weight" for source in tensor.sources} == {"target:model.safetensors:lm_head.weight"}


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    read = read_draft(clean_copy(TRAINED / "tiny-anchor-full-vanilla", tmp_path / "draft"))
    with pytest.raises(UsageError) as error:
        kept_vocabulary(Reduction("600"), read.spec, None, None)
    assert error.value.hint == "pass --target REF"
    with pytest.raises(UsageError) as error:
        kept_of(read, "600", None)
    assert "--corpus FILE" in error.value.hint
    with pytest.raises(SourceError, match="cannot read the mask"):
        kept_of(read, str(tmp_path / "none.npy"), None)
    with pytest.raises(SourceError, match="cannot read the corpus"):
        kept_of(read, "600", tmp_path / "none.jsonl")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match=r"not a plain \.npy array"):
        kept_of(read, str(tmp_path / "objects.npy"), None)


def test_a_reduced_draft_is_not_reduced_again(tmp_path: Path) -> None:
    source = clean_copy(TRAINED / "tiny-bonus-reduced-vanilla", tmp_path / "draft")
    with pytest.raises(RefusedError, match="reduced already"):
        normalize_draft(source, tmp_path / "out", kept=Kept([0, 1], "test"))
