"""GGUF: each rule by literal bytes, no allocation beyond the file, and the round trip through the tensor table."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.container.gguf import GGML_TYPES, MAX_ENTRIES, GgufFault, GgufFile, LongArray, parse_gguf
from speculators_convert.container.header import Tensor

GOOD = Path(__file__).parents[3] / "fixtures" / "good"


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def entry(name: str, *extents: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack("<I", len(extents)) + struct.pack(f"<{len(extents)}Q", *extents) + struct.pack("<IQ", kind, offset)


def made(pairs: list[bytes], entries: list[bytes], data: bytes = b"", *, alignment: int = 32, counts: tuple[int, int] | None = None, version: int = 3) -> bytes:
    tensor_count, pair_count = counts or (len(entries), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join(pairs) + b"".join(entries)
    return head + b"\0" * (-len(head) % alignment) + data


def parsed(data: bytes) -> GgufFile:
    return parse_gguf(lambda start, stop: data[start:stop], len(data))


def fault(data: bytes) -> str:
    with pytest.raises(GgufFault) as caught:
        parsed(data)
    assert caught.value.measured is not None
    assert caught.value.expected is not None
    return caught.value.message


def test_values_of_each_type() -> None:
    pairs = [
        pair("u8", 0, b"\xff"),
        pair("i8", 1, b"\xff"),
        pair("u16", 2, b"\xff\xff"),
        pair("i16", 3, b"\xff\xff"),
        pair("u32", 4, b"\xff" * 4),
        pair("i32", 5, b"\xff" * 4),
        pair("f32", 6, struct.pack("<f", 0.1)),
        pair("true", 7, b"\x01"),
        pair("s", 8, text("caf\u00e9")),
        pair("u64", 10, b"\xff" * 8),
        pair("i64", 11, b"\xff" * 8),
        pair("f64", 12, struct.pack("<d", 0.1)),
        pair("list", 9, struct.pack("<IQ", 4, 2) + struct.pack("<II", 3, 4)),
        pair("none", 9, struct.pack("<IQ", 4, 0)),
        pair("words", 9, struct.pack("<IQ", 8, 2) + text("a") + text("")),
        pair("nan", 6, struct.pack("<f", float("nan"))),
        pair("inf", 12, struct.pack("<d", float("inf"))),
        pair("bytes", 8, text(b"\xff")),
    ]
    assert parsed(made(pairs, [])).metadata == {
        "u8": 255,
        "i8": -1,
        "u16": 65535,
        "i16": -1,
        "u32": 4294967295,
        "i32": -1,
        "f32": 0.1,
        "true": True,
        "s": "caf\u00e9",
        "u64": (1 << 64) - 1,
        "i64": -1,
        "f64": 0.1,
        "list": [3, 4],
        "none": [],
        "words": ["a", ""],
        "nan": None,
        "inf": None,
        "bytes": "\\xff",
    }


def test_long_arrays_are_counted_and_what_follows_is_still_read() -> None:
    numbers = pair("n", 9, struct.pack("<IQ", 4, 5000) + bytes(20000))
    words = pair("w", 9, struct.pack("<IQ", 8, 5000) + b"".join(text(str(index)) for index in range(5000)))
    assert parsed(made([numbers, words, pair("after", 4, b"\x07\0\0\0")], [])).metadata == {"n": LongArray("I", 5000), "w": LongArray("string", 5000), "after": 7}


def test_tensors_have_row_major_shapes_and_file_offsets() -> None:
    data = made([], [entry("b", 32, 2, kind=8, offset=32), entry("a", 3, 2, kind=0)], bytes(32 + 68))
    file = parsed(data)
    start = file.data_start
    assert start % 32 == 0
    assert file.tensors == (Tensor("a", "F32", (2, 3), start, start + 24), Tensor("b", "Q8_0", (2, 32), start + 32, start + 100))


def test_another_alignment() -> None:
    data = made([pair("general.alignment", 4, struct.pack("<I", 64))], [entry("a", 1)], bytes(4), alignment=64)
    assert parsed(data).tensors[0].start % 64 == 0


def test_version_two_is_read() -> None:
    assert parsed(made([], [], version=2)).version == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file does not start as GGUF does"),
        (b"GGUF", "the file does not start as GGUF does"),
        (b"GGML" + bytes(20), "the file does not start as GGUF does"),
        (made([], [], version=1), "the GGUF version is not supported"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "the GGUF version is not supported"),
        (made([], [], counts=(1, 0)), "more tensors than the file can hold"),
        (made([], [], counts=(1 << 63, 0)), "more tensors than the file can hold"),
        (made([], [], counts=(0, 1 << 63)), "more metadata pairs than the file can hold"),
        (made([], [], bytes(24 * (MAX_ENTRIES + 1)), counts=(MAX_ENTRIES + 1, 0)), "too many tensors"),
        (made([pair("a", 0, b"\0"), pair("a", 0, b"\0")], []), "a metadata key stands twice"),
        (made([pair("a", 13, b"\0")], []), "unknown metadata type"),
        (made([pair("a", 9, struct.pack("<IQ", 9, 1))], []), "unknown array type"),
        (made([pair("a", 9, struct.pack("<IQ", 0, 1 << 40))], []), "more array items than the file can hold"),
        (made([pair("a", 9, struct.pack("<IQ", 8, 1 << 60))], []), "more array items than the file can hold"),
        (made([pair("a", 9, struct.pack("<IQ", 8, 5000) + text("x") * 4999 + struct.pack("<Q", 1 << 62))], []), "more bytes than the file can hold"),
        (made([pair("a", 8, struct.pack("<Q", 1 << 62))], []), "a string is too long"),
        (made([pair("a", 8, struct.pack("<Q", 1 << 20))], []), "the file ends inside its header"),
        (made([struct.pack("<Q", 1 << 20) + b"x"], []), "a string is too long"),
        (made([pair("general.alignment", 4, struct.pack("<I", 0))], []), "general.alignment must be a power of two"),
        (made([pair("general.alignment", 4, struct.pack("<I", 24))], []), "general.alignment must be a power of two"),
        (made([pair("general.alignment", 8, text("32"))], []), "general.alignment must be a power of two"),
        (made([], [entry("a", 1, 1, 1, 1, 1)], bytes(4)), "too many dimensions"),
        (made([], [entry("a", 1, kind=42)], bytes(4)), "unknown ggml type"),
        (made([], [entry("a", 31, kind=8)], bytes(40)), "the first extent does not fill whole blocks, or the size overflows"),
        (made([], [entry("a", 1 << 40, 1 << 40)], bytes(4)), "the first extent does not fill whole blocks, or the size overflows"),
        (made([], [entry("a", 1, offset=8)], bytes(16)), "a tensor is not aligned"),
        (made([], [entry("a", 9), entry("b", 1, offset=32)], bytes(64)), "two tensors share bytes"),
        (made([], [entry("a", 1), entry("a", 1, offset=32)], bytes(64)), "a tensor stands twice"),
        (made([], [entry("a", 2)], bytes(4)), "the file ends before its tensors do"),
        (made([], [entry("a", 1, offset=1 << 62)], bytes(4)), "the file ends before its tensors do"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    assert fault(data) == message


def test_claims_of_a_small_file_allocate_little() -> None:
    """A count or length far beyond the file is refused before memory is taken for it."""
    bombs = [
        made([], [], counts=(1 << 40, 0)),
        made([pair("a", 9, struct.pack("<IQ", 4, 1 << 40))], []),
        made([pair("a", 8, struct.pack("<Q", 1 << 40))], []),
        made([], [entry("a", 1 << 40)], bytes(4)),
    ]
    tracemalloc.start()
    for bomb in bombs:
        with pytest.raises(GgufFault):
            parsed(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_sparse_file_is_read_only_where_its_table_is() -> None:
    """A 70 GB draft costs one chunk."""
    data = made([], [entry("a", 1 << 34)], b"")
    size, asked = len(data) + (4 << 34), []

    def read(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return data[start:stop].ljust(stop - start, b"\0")

    assert parse_gguf(read, size).tensors[0].size_bytes == 4 << 34
    assert sum(asked) <= 2 << 20


@given(st.sampled_from(sorted(path.name for path in GOOD.iterdir() if path.name.startswith("gguf"))), st.data())
def test_damaged_bytes_are_a_fault_or_a_table_inside_the_file(name: str, data: st.DataObject) -> None:
    raw = bytearray((GOOD / name / "draft.gguf").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(raw) - 1, 3000)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    del raw[data.draw(st.integers(0, len(raw)) | st.just(len(raw))) :]
    try:
        file = parsed(bytes(raw))
    except GgufFault:
        return
    for tensor in file.tensors:
        assert file.data_start <= tensor.start <= tensor.stop <= len(raw)


def test_type_sizes_and_files_agree_with_the_gguf_package(tmp_path: Path) -> None:
    """The reference writer's own file, read here; the reference reader on our fixtures."""
    gguf = pytest.importorskip("gguf", reason="the gguf package is in the dev extra")
    np = pytest.importorskip("numpy")
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.constants.GGML_QUANT_SIZES.items()}
    assert {kind: sizes for kind, sizes in GGML_TYPES.items() if kind in theirs} == {kind: sizes for kind, sizes in theirs.items() if kind in GGML_TYPES}
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "dflash")
    writer.add_uint32("dflash.block_size", 7)
    writer.add_array("dflash.target_layers", [2, 10])
    writer.add_float32("dflash.rope.freq_base", 1e6)
    writer.add_bool("dflash.sample_from_anchor", True)
    writer.add_tensor("fc.weight", np.ones((8, 16), np.float32))
    writer.add_tensor("markov_w1.weight", np.ones((64, 4), np.float16))
    writer.add_tensor("d2t", np.arange(24, dtype=np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = parsed((tmp_path / "x.gguf").read_bytes())
    assert file.metadata == {
        "general.architecture": "dflash",
        "dflash.block_size": 7,
        "dflash.target_layers": [2, 10],
        "dflash.rope.freq_base": 1e6,
        "dflash.sample_from_anchor": True,
    }
    assert [(item.name, item.dtype, item.shape) for item in file.tensors] == [("fc.weight", "F32", (8, 16)), ("markov_w1.weight", "F16", (64, 4)), ("d2t", "I64", (24,))]
    for path in sorted(GOOD.glob("gguf-*/draft.gguf")):
        reference = gguf.GGUFReader(path)
        ours = parsed(path.read_bytes())
        assert {item.name: (item.tensor_type.name, tuple(int(extent) for extent in reversed(item.shape)), item.data_offset, item.n_bytes) for item in reference.tensors} == {
            item.name: (item.dtype, item.shape, item.start, item.size_bytes) for item in ours.tensors
        }
        keys = {key for key in reference.fields if not key.startswith("GGUF.")}
        assert keys == set(ours.metadata)
