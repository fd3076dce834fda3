"""The dense rewrite drafts the same tokens as the original, gives other ids probability zero, and checks its precondition."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from normalizing import FIXTURES, Read, clean_copy, normalize_draft, plan_draft, read_draft
from torch import Tensor

from speculators_convert.checkpoint import collect
from speculators_convert.errors import RefusedError, UsageError
from speculators_convert.rewrite import receipt
from speculators_convert.smoke.engine import decode, loop
from speculators_convert.smoke.engine.load import NAMES, Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.target.vocabulary import read_tables

LIBRARY, TRAINED = FIXTURES / "library", FIXTURES / "trained"
PATTERNS = ("library/*/*-reduced*", "trained/*reduced*", "trained/*noncausal*", "library/0.9.0/sliding-noncausal", "library/0.9.0/confidence-without-markov")
REDUCED = sorted(path.parent.relative_to(FIXTURES).as_posix() for pattern in PATTERNS for path in FIXTURES.glob(f"{pattern}/config.json"))
TRAINED_REDUCED = [name for name in REDUCED if name.startswith("trained/")]


def target_of(name: str) -> Path:
    return TRAINED / "tiny-target" if name.startswith("trained/") else LIBRARY / "target"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pair(name: str, tmp_path: Path, **options: Any) -> tuple[Read, Read]:
    """The original and its dense rewrite."""
    source = clean_copy(FIXTURES / name, tmp_path / "draft")
    written = normalize_draft(source, tmp_path / "dense", "sglang-dense", target=target_of(name), **options)
    assert receipt.verify(written.folder) == ()
    return read_draft(source), read_draft(written.folder)


def engine(read: Read, target: Target, where: Placement) -> Draft:
    return Draft(Reading(read.spec), read_weights(read.spec, read.source, where), target.shared)


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_agree_on_kept_ids_and_all_others_have_probability_zero(name: str, dtype: str, tmp_path: Path) -> None:
    original, dense = pair(name, tmp_path)
    where = Placement(NAMES[dtype])
    target = load_target(target_of(name), original.spec.target_layer_ids or (), where)
    before, after = engine(original, target, where), engine(dense, target, where)
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(5, original.spec.query_slots or 0, original.spec.hidden_size or 0, generator=generator).to(where.dtype)
    previous = torch.randint(0, original.spec.target_vocab_size or 0, (5, original.spec.query_slots or 0), generator=generator)
    narrow, wide = decode.score(before, hidden, previous), decode.score(after, hidden, previous)
    kept = torch.from_numpy(np.array(read_tables(original.checkpoint).targets(original.spec.d2t)))
    assert wide.shape[-1] == original.spec.target_vocab_size
    ulps = {"float32": 1e-5, "bfloat16": 2.0**-7}[dtype]
    assert torch.allclose(wide[..., kept].float(), narrow.float(), rtol=ulps, atol=ulps)
    others = torch.ones(wide.shape[-1], dtype=torch.bool)
    others[kept] = False
    assert torch.softmax(wide.float(), -1)[..., others].eq(0).all()
    if dtype == "float32":
        assert torch.equal(kept[narrow.argmax(-1)], wide.argmax(-1))


@pytest.mark.parametrize("name", TRAINED_REDUCED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_trained_drafts_propose_the_same_tokens(name: str, dtype: str, tmp_path: Path) -> None:
    original, dense = pair(name, tmp_path)
    where = Placement(NAMES[dtype])
    target = load_target(target_of(name), original.spec.target_layer_ids or (), where)
    prompts = [json.loads(line)["input_ids"] for line in (TRAINED / "prompts.jsonl").read_text().splitlines()[:6]]
    runs = []
    for read in (original, dense):
        seen: list[Tensor] = []
        with torch.no_grad():
            outputs = loop.generate(engine(read, target, where), target, prompts, loop.Limits(40, (0,)), steps=replace(loop.EAGER, propose=_recorded(seen)))
        runs.append(([output.tokens for output in outputs], [output.accepted for output in outputs], seen))
    assert runs[0][:2] == runs[1][:2]
    assert sum(sum(accepted) for accepted in runs[0][1]) > 30, "a draft that is never accepted proves little"
    assert len(runs[0][2]) == len(runs[1][2])
    assert all(torch.equal(left, right) for left, right in zip(runs[0][2], runs[1][2], strict=True))


def _recorded(seen: list[Tensor]) -> Callable[..., decode.Proposal]:
    def propose(draft: Draft, state: decode.State, extent: int) -> decode.Proposal:
        proposal = decode.propose(draft, state, extent)
        seen.append(proposal.tokens)
        return proposal

    return propose


@pytest.mark.parametrize("pad", [1, 2, 8, 24])
def test_the_pad_is_the_users_choice(pad: int, tmp_path: Path) -> None:
    original, dense = pair("library/0.9.0/rnn-bonus-reduced", tmp_path, rank_pad=pad)
    assert original.spec.markov is not None
    assert dense.spec.markov is not None
    assert dense.spec.markov.rank == (original.spec.markov.rank or 0) + pad
    assert dense.spec.tensors["markov_head.joint_proj.weight"].shape == (3 * (8 + pad), 2 * (8 + pad) + 32)


@pytest.mark.parametrize("pad", [0, -1, 5000])
def test_a_pad_that_is_none_is_refused(pad: int) -> None:
    name = "library/0.9.0/vanilla-anchor-reduced"
    with pytest.raises(UsageError, match="--rank-pad"):
        plan_draft(read_without_oracle(name), "sglang-dense", target=target_of(name), rank_pad=pad)


def read_without_oracle(name: str) -> Read:
    return read_draft(MemorySource({path.name: path.read_bytes() for path in (FIXTURES / name).iterdir()}))


def test_the_receipt_says_what_was_computed(tmp_path: Path) -> None:
    source = clean_copy(LIBRARY / "0.9.0/gated-anchor-reduced", tmp_path / "draft")
    written = normalize_draft(source, tmp_path / "dense", "sglang-dense", target=LIBRARY / "target")
    computed = {tensor.name: tensor.why for tensor in written.receipt.predicate.tensors if tensor.made == "computed"}
    markov = {f"markov_head.{name}" for name in ("markov_w1.weight", "markov_w2.weight", "gate_proj.weight", "gate_proj.bias")}
    assert set(computed) == {*markov, "confidence_head.proj.weight"}
    assert all(computed.values())
    copied = {tensor.name for tensor in written.receipt.predicate.tensors} - set(computed)
    assert "fc.weight" in copied
    assert written.receipt.predicate.target is not None
    assert written.receipt.predicate.target.name == "target"


def changed_target(tmp_path: Path, rows: list[int]) -> Path:
    """The library's target with one number of some head rows changed in its highest bits."""
    folder = shutil.copytree(LIBRARY / "target", tmp_path / "other")
    head = collect(LocalSource(folder)).tensors["lm_head.weight"].tensor
    data = bytearray((folder / "model.safetensors").read_bytes())
    for row in rows:
        data[head.start + row * 64 + 1] ^= 0x40
    (folder / "model.safetensors").write_bytes(data)
    return folder


def test_a_head_that_is_not_the_targets_is_refused_with_number_and_size(tmp_path: Path) -> None:
    read = read_without_oracle("library/0.9.0/vanilla-anchor-reduced")
    kept = read_tables(read.checkpoint).targets(read.spec.d2t)
    assert kept is not None
    unused = sorted(set(range(96)) - set(kept.tolist()))
    plan_draft(read, "sglang-dense", target=changed_target(tmp_path, unused))
    shutil.rmtree(tmp_path / "other")
    with pytest.raises(RefusedError, match="would give other logits") as error:
        plan_draft(read, "sglang-dense", target=changed_target(tmp_path, [int(kept[0]), int(kept[7]), *unused[:1]]))
    assert str(error.value.measured).startswith("2 of 48 rows differ, by up to ")
    assert "first at draft id 0" in str(error.value.measured)


def with_config(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_a_packed_target_head_is_refused(tmp_path: Path) -> None:
    folder = changed_target(tmp_path, [])
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    renamed = data[8 : 8 + size].replace(b'"lm_head.weight"', b'"lm_head.qqqqqq"')
    (folder / "model.safetensors").write_bytes(data[:8] + renamed + data[8 + size :])
    with pytest.raises(RefusedError, match="cannot be compared") as error:
        plan_draft(read_without_oracle("library/0.9.0/vanilla-anchor-reduced"), "sglang-dense", target=folder)
    assert "packed or quantized" in str(error.value.measured)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"vocab_size": 95}, "vocab_size"),
        ({"hidden_size": 64}, "hidden_size"),
        ({"max_position_embeddings": 4096}, "max_position_embeddings"),
        ({"num_hidden_layers": 3}, "target_layer_ids"),
    ],
)
def test_a_target_of_other_sizes_is_refused(tmp_path: Path, changes: dict[str, object], where: str) -> None:
    target = with_config(changed_target(tmp_path, []), **changes)
    with pytest.raises(RefusedError) as error:
        plan_draft(read_without_oracle("library/0.9.0/vanilla-anchor-reduced"), "sglang-dense", target=target)
    assert error.value.where == where


def test_it_needs_a_target_and_a_reduced_vocabulary() -> None:
    with pytest.raises(UsageError, match="a target") as error:
        plan_draft(read_without_oracle("library/0.9.0/vanilla-anchor-reduced"), "sglang-dense")
    assert error.value.hint == "pass --target REF"
    with pytest.raises(RefusedError, match="whole vocabulary"):
        plan_draft(read_without_oracle("library/0.9.0/vanilla-anchor-full"), "sglang-dense", target=LIBRARY / "target")
