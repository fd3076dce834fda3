"""Safetensors headers: each fault by literal bytes, the reference implementation as an oracle, and the round trip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from speculators_convert.container.header import DTYPE_BITS, MAX_HEADER_BYTES, HeaderFault, Tensor, encode, header_length, parse, tensor_size_bytes

U8 = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'


def made(text: str | bytes, data: bytes = b"") -> bytes:
    """A file: length, header text as given, data."""
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: str = "U8", shape: str = "[1]", offsets: str = "[0,1]") -> str:
    return f'{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'


GOOD = {
    "empty": made("{}"),
    "trailing spaces": made("{}   \n"),
    "scalar": made(entry(shape="[]"), b"x"),
    "empty tensor": made(entry(shape="[0]", offsets="[0,0]")),
    "zero before a huge extent": made(entry(shape="[0,4611686018427387904,4611686018427387904]", offsets="[0,0]")),
    "half a byte twice": made(entry("F4", "[4]", "[0,2]"), b"xx"),
    "an empty tensor between two": made(f'{{"c":{{"dtype":"U8","shape":[0],"data_offsets":[1,1]}},"a":{U8},"b":{{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}}}', b"xy"),
    "metadata": made(f'{{"__metadata__":{{"format":"pt"}},"a":{U8}}}', b"x"),
    "a name outside ASCII": made(f'{{"\\u00e9\\ud83d\\ude00":{U8}}}', b"x"),
}

BAD = {
    "too-short": [b"", b"\0" * 7],
    "header-too-large": [(MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}", b"\xff" * 8 + b"{}"],
    "header-beyond-file": [(3).to_bytes(8, "little") + b"{}", (100).to_bytes(8, "little")],
    "header-json": [
        made(""),
        made(" {}"),
        made("\ufeff{}"),
        made("[]"),
        made("{"),
        made("{}\0"),
        made("{}{}"),
        made(b'{"\xff":1}'),
        made(b'{"a\x01":{}}'),
        made('{"__metadata__":{"a":"\\ud800"}}'),
        made(f'{{"\\ud800":{U8}}}', b"x"),
        made('{"a":' + "[" * 3000 + "]" * 3000 + "}"),
        made('{"a":NaN}'),
        made('{"a":1e999}'),
    ],
    "duplicate-key": [
        made(f'{{"a":{U8},"a":{U8}}}', b"x"),
        made('{"__metadata__":{},"__metadata__":{}}'),
        made('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    ],
    "metadata-type": [made('{"__metadata__":[]}'), made('{"__metadata__":{"a":1}}'), made('{"__metadata__":null}')],
    "tensor-entry": [
        made('{"a":1}'),
        made('{"a":{}}'),
        made('{"a":{"dtype":"U8","shape":[1]}}', b"x"),
        made('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}', b"x"),
        made(entry("U9"), b"x"),
        made(entry(shape="[-1]"), b"x"),
        made(entry(shape="[1.0]"), b"x"),
        made(entry(shape="[true]"), b"x"),
        made(entry(shape='["1"]'), b"x"),
        made(entry(shape="1"), b"x"),
        made(entry(offsets="[0]"), b"x"),
        made(entry(offsets="[0,1,1]"), b"x"),
        made(entry(offsets="[-0,1]"), b"x"),
        made(entry(offsets="[0,1e0]"), b"x"),
        made(entry(offsets=f"[0,{1 << 64}]"), b"x"),
        made(entry(shape="[" + ",".join(["1"] * 65) + "]"), b"x"),
        made(entry(shape="[4611686018427387904,4611686018427387904,0]", offsets="[0,0]")),
    ],
    "size-mismatch": [made(entry(offsets="[0,2]"), b"xx"), made(entry(offsets="[1,0]"), b"x"), made(entry("F32"), b"x"), made(entry("F4", "[3]", "[0,2]"), b"xx")],
    "overlap": [
        made(f'{{"a":{U8},"b":{U8}}}', b"x"),
        made('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}', b"xx"),
    ],
    "hole": [made(entry(offsets="[1,2]"), b"xx"), made(f'{{"a":{U8},"b":{{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}}}', b"xyz")],
    "truncated": [made(entry()), made(entry("F32", "[1]", "[0,4]"), b"xyz")],
    "trailing": [made("{}", b"x"), made(entry(), b"xy")],
}
STRICTER = {"duplicate-key", "metadata-type", "tensor-entry", "header-json"}
"""Kinds where we also refuse files that the library opens (duplicate keys, null metadata, unknown entry keys, leading blanks)."""


def library_opens(data: bytes, folder: Path) -> bool:
    path = folder / "x.safetensors"
    path.write_bytes(data)
    try:
        with safe_open(path, "np"):
            return True
    except Exception:  # noqa: BLE001 - the library raises one class per kind of fault
        return False


def fault(data: bytes) -> HeaderFault | None:
    try:
        parse(data, len(data))
    except HeaderFault as error:
        return error
    return None


@pytest.mark.parametrize("name", GOOD)
def test_good_files_are_accepted_here_and_by_the_library(name: str, tmp_path: Path) -> None:
    assert fault(GOOD[name]) is None
    assert library_opens(GOOD[name], tmp_path)


@pytest.mark.parametrize(("kind", "data"), [(kind, data) for kind, files in BAD.items() for data in files])
def test_each_fault_has_its_kind_and_says_what_and_where(kind: str, data: bytes, tmp_path: Path) -> None:
    found = fault(data)
    assert found is not None
    assert found.kind == kind
    assert found.message
    assert found.measured is not None
    if kind not in STRICTER:
        assert not library_opens(data, tmp_path)


def test_a_fault_names_its_tensor() -> None:
    found = fault(BAD["truncated"][1])
    assert found is not None
    assert (found.tensor, found.measured, found.expected) == ("a", f"{len(BAD['truncated'][1])} bytes", f"{len(BAD['truncated'][1]) + 1} bytes")


def test_offsets_are_those_of_the_file() -> None:
    data = GOOD["metadata"]
    header = parse(data, len(data))
    assert header.metadata == {"format": "pt"}
    assert header.size_bytes == len(data) - 1
    assert header.tensors == (Tensor("a", "U8", (1,), len(data) - 1, len(data)),)
    assert header.tensors[0].size_bytes == 1


def test_the_length_alone_is_checked_before_the_rest_is_read() -> None:
    assert header_length((5).to_bytes(8, "little"), 13) == 5
    with pytest.raises(HeaderFault, match="over the format's limit"):
        header_length((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), 1 << 40)


def test_sizes() -> None:
    assert tensor_size_bytes("BF16", (3, 5)) == 30
    assert tensor_size_bytes("F4", (4,)) == 2
    with pytest.raises(HeaderFault, match="whole byte"):
        tensor_size_bytes("F4", (3,))
    with pytest.raises(HeaderFault, match="unknown dtype"):
        tensor_size_bytes("F128", (3,))


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
tensors = st.dictionaries(names, st.tuples(st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.integers(0, 3), max_size=3)), max_size=6)


@given(tensors, st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=3))
def test_what_is_encoded_is_parsed_back_and_opens_in_the_library(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, tuple[str, list[int]]], metadata: dict[str, str]
) -> None:
    listed = []
    for name, (dtype, shape) in wanted.items():
        try:
            listed.append(Tensor(name, dtype, tuple(shape), 0, tensor_size_bytes(dtype, shape)))
        except HeaderFault:
            continue
    head = encode(listed, metadata)
    data = head + bytes(sum(item.size_bytes for item in listed))
    header = parse(data, len(data))
    assert {(item.name, item.dtype, item.shape, item.size_bytes) for item in header.tensors} == {(item.name, item.dtype, item.shape, item.size_bytes) for item in listed}
    assert header.metadata == metadata
    assert len(head) % 8 == 0
    assert encode(listed, dict(reversed(metadata.items()))) == head
    assert library_opens(data, tmp_path_factory.mktemp("round"))


BASE = made(
    json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "BOOL", "shape": [1, 2], "data_offsets": [8, 10]}}),
    bytes(10),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sound file with some bytes replaced, removed or inserted."""
    data = bytearray(draw(st.sampled_from([BASE, *GOOD.values()])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["replace", "remove", "insert", "digit"]))
        if what == "replace" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif what == "remove":
            del data[at : at + draw(st.integers(1, 4))]
        elif what == "insert":
            data[at:at] = draw(st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from([b"0", b"-", b'"', b",", b"\\ud800", b"[", b"}", b"null"])))
        elif at < len(data) and 48 <= data[at] <= 57:
            data[at] = 48 + draw(st.integers(0, 9))
    if draw(st.booleans()) and len(data) > 8:  # keep the length right, so that the mutation reaches the JSON
        body = bytes(data[8:])
        data[:8] = min(len(body), body.rfind(b"}") + 1).to_bytes(8, "little")
    return bytes(data)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_what_the_library_refuses_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    if fault(data) is None:
        assert library_opens(data, tmp_path_factory.mktemp("mutated"))
