"""What a tokenizer.json says of ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.target.tokenizer import byte_alphabet, parse_tokenizer, read_tokenizer

TARGET = Path(__file__).resolve().parents[2] / "fixtures/trained/tiny-target"


def test_the_trained_target() -> None:
    found = read_tokenizer(LocalSource(TARGET))
    assert found is not None
    assert found.size == 1024
    assert found.special == {0: "<|endoftext|>", 1: "<|pad|>", 2: "<|mask|>"}
    assert len(found.byte_ids) == 256
    assert found.text[found.byte_ids[0]] == "!"


def test_byte_alphabet() -> None:
    alphabet = byte_alphabet()
    assert len(alphabet) == 256
    assert {"A", "Ġ", "Ċ", "ł", "ÿ"} <= alphabet


def test_byte_fallback_and_unigram() -> None:
    found = parse_tokenizer({"model": {"vocab": [["<unk>", 0.0], ["<0x00>", -1.0], ["<0xFF>", -1.0], ["a", -2.0]]}, "added_tokens": [{"id": 9, "content": "<x>", "special": True}]})
    assert found is not None
    assert found.byte_ids == (1, 2)
    assert (found.size, found.special) == (10, {9: "<x>"})


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"model": 3}, {"model": {}}, {"model": {"vocab": 7}}, {"model": {"vocab": {}}}, {"model": {"vocab": {"a": "b"}}}, {"model": {"vocab": [1, [], [2]]}}],
)
def test_other_documents_have_no_tokenizer(document: Any) -> None:
    assert parse_tokenizer(document) is None
    assert read_tokenizer(MemorySource({"tokenizer.json": json.dumps(document).encode()})) is None


def test_odd_added_tokens_are_left_out() -> None:
    found = parse_tokenizer({"model": {"vocab": {"a": 0}}, "added_tokens": [1, {"id": "x"}, {"id": True, "content": "t"}, {"id": 3, "content": 4}]})
    assert found is not None
    assert found.special == {}


def test_a_broken_file_is_no_tokenizer() -> None:
    assert read_tokenizer(MemorySource({"tokenizer.json": b"\xff{"})) is None
    assert read_tokenizer(MemorySource({})) is None
