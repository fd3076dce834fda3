"""What `collect` gathers, and how what is wrong becomes a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speculators_convert.checkpoint import MAX_DOCUMENT_BYTES, Checkpoint, collect, parse_document
from speculators_convert.container.header import Tensor, encode
from speculators_convert.errors import SourceError
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.sources.base import FileInfo, SourceId

INDEX = "model.safetensors.index.json"


def shard(*names: str) -> bytes:
    return encode([Tensor(name, "U8", (1,), 0, 1) for name in names], {}) + bytes(len(names))


def index(**weight_map: str) -> bytes:
    return json.dumps({"weight_map": weight_map}).encode()


def collected(**files: bytes) -> Checkpoint:
    return collect(MemorySource({"config.json": b"{}", **{name.replace("__", "."): data for name, data in files.items()}}))


def kinds(checkpoint: Checkpoint) -> list[tuple[str, str, str]]:
    return [(fault.kind, fault.file, fault.tensor) for fault in checkpoint.faults]


def test_a_single_file() -> None:
    checkpoint = collected(model__safetensors=shard("a", "b"))
    assert kinds(checkpoint) == []
    assert (sorted(checkpoint.tensors), checkpoint.tensor_bytes, checkpoint.tensors["b"].file) == (["a", "b"], 2, "model.safetensors")
    assert checkpoint.file("model.safetensors") is not None
    assert checkpoint.file("x") is None


def test_shards_are_those_of_the_index() -> None:
    files = {"1.safetensors": shard("a"), "2.safetensors": shard("b"), INDEX: index(a="1.safetensors", b="2.safetensors"), "config.json": b"{}"}
    checkpoint = collect(MemorySource(files))
    assert kinds(checkpoint) == []
    assert {name: location.file for name, location in checkpoint.tensors.items()} == {"a": "1.safetensors", "b": "2.safetensors"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, [("no-weights", "", "")]),
        ({"1.safetensors": shard("a"), INDEX: b"[]"}, [("index-invalid", INDEX, "")]),
        ({"1.safetensors": shard("a"), INDEX: b"{"}, [("document-json", INDEX, "")]),
        ({"1.safetensors": shard("a"), INDEX: index(a="1.safetensors", b="2.safetensors")}, [("index-missing-shard", INDEX, "")]),
        ({"1.safetensors": shard("a"), "x.bin": b"", INDEX: index(a="1.safetensors", b="x.bin")}, [("index-missing-shard", INDEX, "")]),
        ({"1.safetensors": shard("a"), INDEX: index(a="1.safetensors", b="../x.safetensors")}, [("index-missing-shard", INDEX, "")]),
        ({"1.safetensors": shard("a"), "2.safetensors": shard("b"), INDEX: index(a="1.safetensors")}, [("index-unlisted-file", "2.safetensors", "")]),
        ({"1.safetensors": shard("a", "b"), INDEX: index(a="1.safetensors")}, [("index-unlisted-tensor", "1.safetensors", "b")]),
        ({"1.safetensors": shard("a"), INDEX: index(a="1.safetensors", b="1.safetensors")}, [("index-missing-tensor", INDEX, "b")]),
        ({"1.safetensors": shard("a"), "2.safetensors": shard("a", "b")}, [("duplicate-tensor", "2.safetensors", "a")]),
        (
            {"1.safetensors": shard("a"), "2.safetensors": shard("a", "b"), INDEX: index(a="1.safetensors", b="2.safetensors")},
            [("index-wrong-shard", "2.safetensors", "a"), ("duplicate-tensor", "2.safetensors", "a")],
        ),
        ({"1.safetensors": shard("a")[:-1]}, [("truncated", "1.safetensors", "a")]),
        ({"1.safetensors": shard("a") + b"x"}, [("trailing", "1.safetensors", "")]),
        ({"1.safetensors": b""}, [("too-short", "1.safetensors", "")]),
    ],
)
def test_index_headers_and_files_must_agree(files: dict[str, bytes], expected: list[tuple[str, str, str]]) -> None:
    assert kinds(collect(MemorySource({"config.json": b"{}", **files}))) == expected


def test_of_two_copies_the_index_chooses() -> None:
    files = {"1.safetensors": shard("a"), "2.safetensors": shard("a", "b"), INDEX: index(a="2.safetensors", b="2.safetensors"), "config.json": b"{}"}
    assert collect(MemorySource(files)).tensors["a"].file == "2.safetensors"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (b"[]", "config-not-object"),
        (b"3", "config-not-object"),
        (b"{", "document-json"),
        (b"", "document-json"),
        (b'{"a":NaN}', "document-json"),
        (b'{"a":1,"a":1}', "document-json"),
        (b'{"a":"\\ud800"}', "document-json"),
        (b'{"a":1e999}', "document-json"),
        (b"\xff\xfe{}", "document-json"),
        (b"[" * 100_000, "document-json"),
    ],
)
def test_a_bad_config_is_a_fault_and_reads_as_empty(config: bytes, expected: str) -> None:
    checkpoint = collect(MemorySource({"config.json": config, "model.safetensors": shard("a")}))
    assert kinds(checkpoint) == [(expected, "config.json", "")]
    assert checkpoint.config == {}
    assert checkpoint.faults[0].measured is not None


def test_a_byte_order_mark_is_allowed() -> None:
    assert parse_document(b"\xef\xbb\xbf{}") == {}


def test_a_missing_config_is_a_fault() -> None:
    assert kinds(collect(MemorySource({"model.safetensors": shard("a")}))) == [("config-missing", "config.json", "")]


class Huge:
    """A source whose config claims to be large; reading it would fail the test."""

    id = SourceId("memory", "huge")

    def files(self) -> tuple[FileInfo, ...]:
        return (FileInfo("config.json", MAX_DOCUMENT_BYTES + 1), FileInfo("model.safetensors", 1 << 50))

    def read(self, path: str, start: int, stop: int) -> bytes:
        assert path == "model.safetensors"
        assert stop - start <= 16 * 1024
        return (1 << 40).to_bytes(8, "little").ljust(stop - start, b"\0")


def test_sizes_are_checked_before_anything_is_read() -> None:
    assert [kind for kind, _, _ in kinds(collect(Huge()))] == ["document-too-large", "header-too-large"]


def test_a_file_that_vanishes_is_an_error_not_a_fault(tmp_path: Path) -> None:
    class Vanishing(LocalSource):
        def files(self) -> tuple[FileInfo, ...]:
            return (FileInfo("config.json", 2),)

    with pytest.raises(SourceError, match="cannot read the file"):
        collect(Vanishing(tmp_path))


def test_small_tables_are_read_with_the_headers_and_large_ones_are_not() -> None:
    checkpoint = collected(model__safetensors=shard("d2t", "other"))
    assert checkpoint.payloads == {"d2t": b"\0"}
