"""Whatever a draft says of itself, a layout plans it or refuses it: no other exception reaches the user."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from normalizing import FIXTURES, Read, read_draft, synthetic_draft

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.container.header import tensor_size_bytes
from speculators_convert.errors import SpecConvertError
from speculators_convert.layouts import LAYOUTS, Options
from speculators_convert.layouts.base import Kept
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.spec import D2T, DraftSpec
from speculators_convert.target.head_comparison import HeadComparison
from speculators_convert.target.pairing import collect_pairing
from speculators_convert.target.vocabulary import read_tables

FULL, REDUCED = (read_draft(MemorySource(synthetic_draft(head="gated", reduced=reduced))) for reduced in (False, True))
TARGET_SOURCE = LocalSource(FIXTURES / "library/target")
TARGET = collect(TARGET_SOURCE)
SIZES = ("target_vocab_size", "draft_vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
numbers = st.none() | st.integers(-2, 70)
facts = st.dictionaries(st.sampled_from(("gamma", "query_slots", "mask_token_id", "num_hidden_layers")), numbers, max_size=2)
sizes = st.dictionaries(st.sampled_from(SIZES), numbers | st.sampled_from([2**31, 2**40]), max_size=2)
DTYPES = ("BF16", "F32", "I64", "F8_E4M3", "BOOL")


def reshaped(spec: DraftSpec, role: str, shape: tuple[int, ...], dtype: str) -> DraftSpec:
    """Another shape and dtype, with the byte range that a header would need for them."""
    ref = spec.tensors[role]
    stop = ref.start + tensor_size_bytes(dtype, shape)
    return spec.model_copy(update={"tensors": {**spec.tensors, role: ref.model_copy(update={"shape": shape, "dtype": dtype, "stop": stop})}})


def damaged(read: Read, data: st.DataObject) -> tuple[DraftSpec, Checkpoint]:
    """Other facts, at times a tensor of another shape or dtype, at times one tensor fewer."""
    spec = read.spec.model_copy(update={**data.draw(facts), **data.draw(sizes), "d2t": data.draw(st.sampled_from(D2T))})
    role = data.draw(st.sampled_from(sorted(spec.tensors)))
    how = data.draw(st.sampled_from(["as it is", "reshaped", "removed"]))
    if how == "reshaped":
        return reshaped(spec, role, tuple(data.draw(st.lists(st.integers(0, 30), max_size=3))), data.draw(st.sampled_from(DTYPES))), read.checkpoint
    if how == "as it is":
        return spec, read.checkpoint
    names = {ref.name for name, ref in spec.tensors.items() if name != role}
    kept = {name: ref for name, ref in spec.tensors.items() if name != role}
    return spec.model_copy(update={"tensors": kept}), replace(read.checkpoint, tensors={name: at for name, at in read.checkpoint.tensors.items() if name in names})


@settings(max_examples=300)
@given(st.booleans(), st.data())
def test_only_errors_of_the_tool(reduced: bool, data: st.DataObject) -> None:
    read = REDUCED if reduced else FULL
    spec, checkpoint = damaged(read, data)
    tables = read_tables(checkpoint)
    options = Options(
        pairing=collect_pairing(read.source, spec, tables, TARGET_SOURCE, TARGET) if data.draw(st.booleans()) else None,
        tables=tables,
        heads=HeadComparison(rows=12),
        tp=data.draw(st.none() | st.integers(-1, 20)),
        rank_pad=data.draw(st.integers(-1, 9)),
        kept=Kept([0, 3, 5], "a test") if data.draw(st.booleans()) else None,
    )
    for layout in LAYOUTS.values():
        with suppress(SpecConvertError):
            assert layout.plan(spec, checkpoint, options).size_bytes > 0
