"""The shard index."""

from __future__ import annotations

import pytest

from speculators_convert.container.index import Index, encode_index, parse_index


def test_index() -> None:
    assert parse_index({"metadata": {"total_size": 3}, "weight_map": {"a": "x.safetensors"}}) == Index({"a": "x.safetensors"}, 3)


@pytest.mark.parametrize("metadata", [None, {}, [], {"total_size": "3"}, {"total_size": True}, {"total_size": 3.5}])
def test_a_total_that_is_no_integer_is_left_out(metadata: object) -> None:
    assert parse_index({"metadata": metadata, "weight_map": {"a": "x.safetensors"}}) == Index({"a": "x.safetensors"}, None)


@pytest.mark.parametrize("document", [None, 3, [], {}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": None}, "weight_map"])
def test_no_weight_map(document: object) -> None:
    assert parse_index(document) == "it has no weight_map object"


@pytest.mark.parametrize("shard", [3, None, ["x"], {"x": 1}])
def test_shards_must_be_names(shard: object) -> None:
    assert parse_index({"weight_map": {"a": shard}}) == "weight_map must map tensor names to file names"


def test_an_encoded_index_is_sorted_and_parses_back() -> None:
    document = encode_index({"b": "2.safetensors", "a": "1.safetensors"}, 7)
    assert list(document["weight_map"]) == ["a", "b"]
    assert parse_index(document) == Index({"a": "1.safetensors", "b": "2.safetensors"}, 7)
