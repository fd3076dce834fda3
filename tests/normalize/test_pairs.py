"""From each layout to each other and back: the same tensor bytes and the same normal form, or a refusal that names what cannot be said."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from normalizing import DRAFTS, FIXTURES, Read, Written, clean_copy, normalize_draft, read_draft

from speculators_convert.diff import DiffResult, Side, compare, meaning
from speculators_convert.errors import RefusedError
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.tensor_digests import tensor_digests

LAYOUTS = ("speculators", "sglang", "deepspec", "specforge")
SAMPLE = [name for name in DRAFTS if "/0.8.1/" not in name and ("/0.7.0.2/" not in name or "vanilla" in name)]
"""Drafts of one name have the same weights in each release, so one release is enough for what only tensors decide."""


def target_of(name: str) -> Path:
    return FIXTURES / ("trained/tiny-target" if name.startswith("trained/") else "library/target")


def side(read: Read) -> Side:
    return Side(read.spec, read_tables(read.checkpoint), tensor_digests(read.source, read.spec))


def difference(left: Path, right: Path) -> DiffResult:
    return compare(side(read_draft(left)), side(read_draft(right)))


def expressible(spec: DraftSpec, layout: str) -> bool:
    """What each layout can hold, said again in other words than the code's."""
    if layout == "speculators":
        return True
    if spec.draft_vocab_size != spec.target_vocab_size:
        return False
    edge = {-1, 3} & set(spec.target_layer_ids or ())
    return {"deepspec": True, "sglang": spec.markov is not None and not edge, "specforge": spec.markov is not None and spec.anchor is Anchor.SAMPLED}[layout]


def digests(written: Written) -> dict[str, str]:
    return {tensor.role: tensor.sha256 for tensor in written.receipt.predicate.tensors}


@pytest.mark.parametrize("name", SAMPLE)
def test_every_pair_of_layouts_there_and_back(name: str, tmp_path: Path) -> None:
    source = clean_copy(FIXTURES / name, tmp_path / "draft")
    spec = read_draft(source).spec
    able = [layout for layout in LAYOUTS if expressible(spec, layout)]
    first: dict[str, Written] = {layout: normalize_draft(source, tmp_path / layout, layout, target=target_of(name)) for layout in able}
    for layout, written in first.items():
        result = difference(source, written.folder)
        assert result.same, (layout, result.differences)
    for a, b in permutations(able, 2):
        there = normalize_draft(first[a].folder, tmp_path / f"{a}-{b}", b, target=target_of(name))
        back = normalize_draft(there.folder, tmp_path / f"{a}-{b}-{a}", a, target=target_of(name))
        assert digests(back) == digests(first[a])
        assert meaning(read_draft(back.folder).spec) == meaning(read_draft(first[a].folder).spec)
        assert (back.folder / "model.safetensors").read_bytes() == (first[a].folder / "model.safetensors").read_bytes()


INEXPRESSIBLE = [(name, layout) for name in SAMPLE for layout in LAYOUTS if not expressible(read_draft(FIXTURES / name).spec, layout)]


@pytest.mark.parametrize(("name", "layout"), INEXPRESSIBLE)
def test_what_a_layout_cannot_express_is_refused_before_anything_is_written(name: str, layout: str, tmp_path: Path) -> None:
    source = clean_copy(FIXTURES / name, tmp_path / "draft")
    with pytest.raises(RefusedError) as error:
        normalize_draft(source, tmp_path / "out", layout, target=target_of(name))
    assert error.value.where
    assert error.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft"]


def test_a_copy_of_the_targets_weights_comes_from_the_target_or_is_asked_for(tmp_path: Path) -> None:
    source = clean_copy(FIXTURES / "library/0.9.0/vanilla-anchor-full", tmp_path / "draft")
    with pytest.raises(RefusedError, match="copy of the target") as error:
        normalize_draft(source, tmp_path / "out", "deepspec")
    assert error.value.hint == "pass --target REF"
    written = normalize_draft(source, tmp_path / "out", "deepspec", target=FIXTURES / "library/target")
    old = normalize_draft(clean_copy(FIXTURES / "library/0.7.0.2/vanilla-anchor-full", tmp_path / "old"), tmp_path / "old-out", "deepspec")
    assert digests(written) == digests(old)
    assert {item.source for item in written.plan.inputs} == {"draft", "target"}


def changed(read: Read, **updates: Any) -> Side:
    before = side(read)
    return Side(read.spec.model_copy(update=updates), before.tables, before.digests)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return read_draft(clean_copy(FIXTURES / "library/0.9.0/vanilla-bonus-reduced", tmp_path / "draft"))


SLIDING = {"sliding_window": 5, "layer_types": (AttentionKind.SLIDING,) * 2}


@pytest.mark.parametrize("updates", [{"anchor": Anchor.SAMPLED}, {"gamma": 2}, {"target_layer_ids": (0, 1)}, {"mask_token_id": 1}, {"rms_norm_eps": 1e-5}, SLIDING])
def test_a_fact_that_differs_makes_another_draft(read: Read, updates: dict[str, Any]) -> None:
    result = compare(side(read), changed(read, **updates))
    assert not result.same
    assert {item.kind for item in result.differences} == {"fact"}
    assert next(iter(updates)) in {item.name for item in result.differences}


def test_spelling_and_producer_do_not(read: Read) -> None:
    result = compare(side(read), changed(read, producer_version="0.7.0", num_target_layers=4, speculative_tokens=None, format="other"))
    assert result.same
    assert result.notes


def test_a_byte_of_a_tensor_does(read: Read) -> None:
    before = side(read)
    result = compare(before, Side(before.spec, before.tables, {**before.digests, "fc.weight": "0" * 64}))
    assert [(item.kind, item.name) for item in result.differences] == [("tensor", "fc.weight")]


def test_a_missing_head_of_a_reduced_draft_does(read: Read) -> None:
    before = side(read)
    without = before.spec.model_copy(update={"tensors": {role: ref for role, ref in before.spec.tensors.items() if role != "lm_head.weight"}})
    result = compare(before, Side(without, before.tables, before.digests))
    assert [(item.name, item.right) for item in result.differences] == [("lm_head.weight", "absent")]


def test_a_table_of_ids_and_one_of_offsets_are_the_same_mapping(read: Read) -> None:
    before = side(read)
    targets = before.tables.targets(D2T.OFFSET)
    assert targets is not None
    absolute = Side(before.spec.model_copy(update={"d2t": D2T.ABSOLUTE}), replace(before.tables, d2t=targets), before.digests)
    assert compare(before, absolute).same
    moved = targets.copy()
    moved[3] += 1
    result = compare(before, replace(absolute, tables=replace(before.tables, d2t=moved)))
    assert [item.kind for item in result.differences] == ["vocabulary"]
    assert "row 3" in result.differences[0].left
