"""A plan that does not cover its files, or that forgets a tensor, cannot be made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from speculators_convert.rewrite.plan import Copy, Dropped, Gather, Input, Literal, OutputFile, OutputTensor, Piece, RewritePlan, Rows, Text, unaccounted


def tensor(name: str, start: int, stop: int, shape: tuple[int, ...] = (4,)) -> OutputTensor:
    return OutputTensor(name=name, role=name, dtype="BF16", shape=shape, start=start, stop=stop, made="copied", sources=(f"draft:model.safetensors:{name}",))


def weights(*tensors: OutputTensor, size_bytes: int = 18) -> OutputFile:
    return OutputFile(
        path="model.safetensors", size_bytes=size_bytes, segments=(Text(text="{}"), Copy(file="model.safetensors", start=0, stop=8), Literal(data=b"ab", count=4)), tensors=tensors
    )


def test_segments_must_give_the_files_size() -> None:
    with pytest.raises(ValidationError, match="the segments give 18 bytes, the file has 19"):
        weights(size_bytes=19)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((tensor("a", 2, 10), tensor("b", 11, 18)), "b starts at 11, the tensor before it ends at 10"),
        ((tensor("a", 2, 10), tensor("b", 9, 18)), "b starts at 9, the tensor before it ends at 10"),
        ((tensor("a", 2, 10),), "8 bytes follow the last tensor"),
        ((tensor("a", 2, 12),), "a does not begin and end with a segment"),
        ((tensor("a", 2, 10, (5,)), tensor("b", 10, 18)), r"a has 8 bytes, BF16 \[5\] needs 10"),
    ],
)
def test_tensors_must_cover_the_data(tensors: tuple[OutputTensor, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        weights(*tensors)


def plan(*files: OutputFile, dropped: tuple[Dropped, ...] = ()) -> RewritePlan:
    return RewritePlan(layout="test", source=Input(kind="folder", name="draft"), inputs=(), files=files, dropped=dropped)


def test_a_file_or_a_tensor_cannot_be_written_twice() -> None:
    whole = weights(tensor("a", 2, 10), tensor("b", 10, 18))
    with pytest.raises(ValidationError, match=r"model\.safetensors would be written twice"):
        plan(whole, whole)
    with pytest.raises(ValidationError, match="a would be written twice"):
        plan(whole, whole.model_copy(update={"path": "other.safetensors"}))


def test_a_forgotten_tensor_is_named() -> None:
    made = plan(weights(tensor("a", 2, 10), tensor("b", 10, 18)), dropped=(Dropped(kind="tensor", name="model.safetensors:c", why="a copy"),))
    assert unaccounted(made, ["model.safetensors:a", "model.safetensors:c", "model.safetensors:d"]) == ("model.safetensors:d",)


def test_rows_must_use_each_source_row_exactly() -> None:
    with pytest.raises(ValidationError, match="exactly once"):
        Rows(file="f", start=0, row_bytes=8, pieces=(Piece(take=6),), runs=(0, 3))
    with pytest.raises(ValidationError, match="as long as an output row"):
        Rows(file="f", start=0, row_bytes=8, pieces=(Piece(take=8, pad=b"1234"),), runs=(2, 3), filler=b"short")


@given(st.binary(max_size=40), st.integers(0, 9))
def test_bytes_survive_json(data: bytes, count: int) -> None:
    segment = Literal(data=data, count=count)
    assert Literal.model_validate_json(segment.model_dump_json()) == segment
    assert segment.size_bytes == len(data) * count


def test_the_digest_changes_with_any_byte() -> None:
    first, second = (plan(OutputFile(path="x", size_bytes=1, segments=(Literal(data=data),))) for data in (b"a", b"b"))
    assert first.digest != second.digest
    assert first.digest == RewritePlan.model_validate_json(first.model_dump_json()).digest


def test_sizes_of_row_segments() -> None:
    assert Gather(file="f", start=0, row_bytes=10, runs=(5, 2, 1, 1)).size_bytes == 30
    assert Rows(file="f", start=0, row_bytes=4, pieces=(Piece(take=2, pad=b"xx"), Piece(take=2)), runs=(3, 2), filler=b"123456").size_bytes == 30
