"""What is fuzzed: each target takes bytes and returns, or raises for a defect. Refusals that a parser may make are part of it.

`tests/hardening/test_corpus.py` replays the committed corpus through the same functions without atheris.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors import SafetensorError, deserialize

from speculators_convert.api import RewriteChoices, look, plan_rewrite
from speculators_convert.checkpoint import parse_document
from speculators_convert.container.gguf import GgufFault, parse_gguf
from speculators_convert.container.header import DTYPE_BITS, Header, HeaderFault, Tensor, encode, parse, tensor_size_bytes
from speculators_convert.container.index import parse_index
from speculators_convert.errors import RefusedError, UsageError
from speculators_convert.report.json_ import render
from speculators_convert.report.text import print_report

ROOT = Path(__file__).parents[1]
BASES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated")
LARGEST_FILE_BYTES = 1 << 16
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 64, 1 << 31, 1 << 63, -(1 << 63), 1 << 200, 0.5, -0.0, 1e308, 1e-320, "", "x", "dspark", "qwen3", "../x", "\u202e",
    "\ud7ff", [], [0], [-1], [1, 1], [[1]], [1 << 70], ["a"], [None], {}, {"a": 1}, {"": {}}, {"rope_type": "yarn", "factor": 0}, [0] * 300, "9" * 400,
)  # fmt: skip


def header(data: bytes) -> None:
    """A safetensors file, and the same bytes as the JSON part of one. What we accept, the reference implementation accepts."""
    _header_file(data, len(data))
    raw = len(data).to_bytes(8, "little") + data
    _header_file(raw, len(raw) + _claimed_bytes(data))


def _header_file(raw: bytes, size_bytes: int) -> None:
    try:
        found = parse(raw, size_bytes)
    except HeaderFault as fault:
        assert fault.kind and fault.message, "a fault without text"
        return
    _check_header(found, raw, size_bytes)


def _check_header(found: Header, raw: bytes, size_bytes: int) -> None:
    assert all(found.size_bytes <= tensor.start <= tensor.stop <= size_bytes for tensor in found.tensors), "a tensor outside the file"
    again = encode(found.tensors, found.metadata)
    data_bytes = size_bytes - found.size_bytes
    reparsed = parse(again, len(again) + data_bytes)
    assert [(item.name, item.dtype, item.shape, item.size_bytes) for item in reparsed.tensors] == [(item.name, item.dtype, item.shape, item.size_bytes) for item in found.tensors]
    if size_bytes <= LARGEST_FILE_BYTES:
        try:
            deserialize(raw[: found.size_bytes] + bytes(data_bytes))
        except SafetensorError as error:
            raise AssertionError(f"accepted here, refused by safetensors: {error}") from error


def _claimed_bytes(text: bytes) -> int:
    """The end of the data that a header states, if it can be read leniently."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    ends = [item["data_offsets"][-1] for item in value.values() if isinstance(item, dict) and _has_end(item)] if isinstance(value, dict) else []
    return max((end for end in ends if 0 <= end < 1 << 62), default=0)


def _has_end(item: Mapping[str, Any]) -> bool:
    offsets = item.get("data_offsets")
    return isinstance(offsets, list) and bool(offsets) and type(offsets[-1]) is int


def index(data: bytes) -> None:
    """`model.safetensors.index.json`: a sentence or a map of strings."""
    try:
        document = parse_document(data)
    except ValueError:
        return
    found = parse_index(document)
    if isinstance(found, str):
        assert found, "a refusal without text"
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in found.weight_map.items())
    json.dumps(found.weight_map, ensure_ascii=False).encode()


def gguf(data: bytes) -> None:
    """A GGUF file: a fault, or tensors inside the file."""
    try:
        found = parse_gguf(lambda start, stop: data[start:stop], len(data))
    except GgufFault as fault:
        assert fault.message, "a fault without text"
        return
    assert all(found.data_start <= tensor.start <= tensor.stop <= len(data) for tensor in found.tensors), "a tensor outside the file"


def config(data: bytes) -> None:
    """The whole of `inspect`, its reports and both plans, for raw config bytes or for edits of a real draft."""
    folder = _folder()
    if data[:1] in {b"{", b"[", b'"', b"\xef"}:
        _write(folder, data, _base(0)[1])
    else:
        document, tensors = _edited(data)
        _write(folder, json.dumps(document).encode(), tensors)
    _inspect(folder, text_too=sum(data) % 16 == 0)  # the text report takes most of the time


def _inspect(folder: Path, *, text_too: bool) -> None:
    inspection = look(str(folder), tp=(2,))
    json.loads(render(inspection.report))
    if text_too:
        print_report(inspection.report, Console(file=StringIO(), width=100))
    for layout in ("speculators", "sglang"):
        try:
            plan_rewrite(inspection, RewriteChoices(layout=layout))
        except (RefusedError, UsageError) as error:
            assert error.what, "a refusal without text"


@cache
def _folder() -> Path:
    shared = Path("/dev/shm")  # noqa: S108 (memory, where there is such a place)
    return Path(tempfile.mkdtemp(prefix="fuzz-config-", dir=shared if shared.is_dir() else None))


def remove_folder() -> None:
    """Remove the folder of the config target."""
    shutil.rmtree(_folder(), ignore_errors=True)


@cache
def _base(number: int) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    folder = ROOT / "fixtures" / "trained" / BASES[number]
    raw = (folder / "model.safetensors").read_bytes()
    return json.loads((folder / "config.json").read_bytes()), parse(raw, len(raw)).tensors


def _write(folder: Path, document: bytes, tensors: tuple[Tensor, ...]) -> None:
    (folder / "config.json").write_bytes(document)
    head = encode(tensors, {"format": "pt"})
    with (folder / "model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + sum(tensor.size_bytes for tensor in tensors))


def _edited(data: bytes) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """A draft changed by a script: one byte chooses the draft, then three bytes each are an edit (where, where, what)."""
    document, tensors = _base(data[0] % len(BASES) if data else 0)
    document, found = json.loads(json.dumps(document)), list(tensors)
    for at in range(1, min(len(data), 60) - 2, 3):
        where, more, what = data[at : at + 3]
        if where & 1:
            _edit_document(document, (where << 8 | more) >> 1, what)
        elif found:
            _edit_tensor(found, more % len(found), what)
    return document, tuple(found)


def _edit_document(document: dict[str, Any], where: int, what: int) -> None:
    places = list(_places(document))
    if not places:
        return
    parent, key = places[where % len(places)]
    if what == 255:
        parent.pop(key) if isinstance(parent, dict) else parent.pop()
    elif what == 254 and isinstance(parent, dict):
        parent[f"{key}_"] = parent.pop(key)
    else:
        parent[key] = deepcopy(VALUES[what % len(VALUES)])


def _places(value: Any) -> Any:
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, item in pairs:
        yield value, key
        yield from _places(item)


def _edit_tensor(tensors: list[Tensor], number: int, what: int) -> None:
    old = tensors[number]
    if what % 4 == 0:
        del tensors[number]
        return
    name, dtype, shape = old.name, old.dtype, list(old.shape)
    if what % 4 == 1:
        shape = [[], [0], [1], [*shape, 1], shape[:-1], [extent + 1 for extent in shape], shape[::-1], [3, 5, 7]][what // 4 % 8]
    elif what % 4 == 2:
        dtype = sorted(DTYPE_BITS)[what // 4 % len(DTYPE_BITS)]
    else:
        name = [f"model.{name}", f"layers.999.{name}", name.upper(), f"{name}_scale", "d2t", "t2d", "lm_head.weight", "\u202e" + name][what // 4 % 8]
    try:
        size = tensor_size_bytes(dtype, shape)
    except HeaderFault:
        return
    if any(item.name == name for place, item in enumerate(tensors) if place != number) or size > 1 << 24:
        return
    tensors[number] = Tensor(name, dtype, tuple(shape), 0, size)


TARGETS: Mapping[str, Callable[[bytes], None]] = {"config": config, "gguf": gguf, "header": header, "index": index}
