"""Applies edits to a checkpoint held in memory: what recipes and mutations are made of. An edit that does not fit raises `NotApplicable`."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from speculators_convert.container.header import DTYPE_BITS

INDEX = "model.safetensors.index.json"
_INTEGERS = {"I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "u1"}


class NotApplicable(Exception):  # noqa: N818
    """The fixture lacks what the edit changes."""


@dataclass
class Entry:
    """One tensor; `override` replaces keys of its header entry."""

    name: str
    dtype: str
    shape: list[int]
    data: bytes
    override: dict[str, Any] = field(default_factory=dict)
    shift: int = 0


@dataclass
class Weights:
    """One safetensors file; `last` are edits of the finished bytes."""

    entries: list[Entry]
    metadata: dict[str, Any]
    hole: int = 0
    text: list[tuple[str, str]] = field(default_factory=list)
    last: list[Callable[[bytes], bytes]] = field(default_factory=list)
    twice: bool = False

    def encode(self) -> bytes:
        """The file."""
        table: dict[str, Any] = {"__metadata__": self.metadata} if self.metadata else {}
        parts, offset = [], 0
        for number, entry in enumerate(self.entries):
            if number == len(self.entries) // 2 and self.hole:
                parts.append(bytes(self.hole))
                offset += self.hole
            start = offset + entry.shift
            row = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [start, start + len(entry.data)], **entry.override}
            table[entry.name] = {key: value for key, value in row.items() if value is not None}
            parts.append(entry.data)
            offset += len(entry.data)
        text = json.dumps(table, separators=(",", ":"))
        if self.twice:
            name = json.dumps(self.entries[0].name)
            text = text[:-1] + f",{name}:{json.dumps(table[self.entries[0].name])}" + "}"
        for old, new in self.text:
            text = text.replace(old, new, 1)
        head = text.encode()
        head += b" " * (-len(head) % 8)
        data = len(head).to_bytes(8, "little") + head + b"".join(parts)
        for edit in self.last:
            data = edit(data)
        return data


class Draft:
    """A checkpoint that can be edited: config, weights, index and other files."""

    def __init__(self, files: Mapping[str, bytes], name: str = "") -> None:
        self.name = name
        self.other = {path: data for path, data in files.items() if not path.endswith(".safetensors") and path not in ("config.json", INDEX)}
        self.config: dict[str, Any] = json.loads(files.get("config.json", b"{}"))
        self.has_config = "config.json" in files
        self.index: Any = json.loads(files[INDEX]) if INDEX in files else None
        self.weights = {path: parse(data) for path, data in sorted(files.items()) if path.endswith(".safetensors")}
        self.config_text: list[tuple[str, str]] = []
        self.tp: tuple[int, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> Draft:
        """A folder, without recorded reference outputs."""
        return cls({item.name: item.read_bytes() for item in sorted(folder.iterdir()) if item.is_file() and not item.name.startswith("oracle")}, str(folder))

    def copy(self) -> Draft:
        """An independent copy."""
        return copy.deepcopy(self)

    def files(self) -> dict[str, bytes]:
        """The checkpoint as files."""
        text = json.dumps(self.config, indent=2)
        for old, new in self.config_text:
            if old not in text:
                raise NotApplicable(old)
            text = text.replace(old, new, 1)
        found = {path: item.encode() for path, item in self.weights.items()}
        if self.has_config:
            found["config.json"] = text.encode()
        if self.index is not None:
            found[INDEX] = json.dumps(self.index).encode()
        return {**found, **self.other}

    def apply(self, edits: tuple[tuple[Any, ...], ...]) -> Draft:
        """A copy with the edits made in order."""
        result = self.copy()
        for name, *arguments in edits:
            EDITS[name](result, *arguments)
        return result

    def entry(self, name: str) -> Entry:
        """The tensor of that name."""
        return next((entry for item in self.weights.values() for entry in item.entries if entry.name == name), None) or _refuse(name)

    def first(self) -> Weights:
        """The first weight file."""
        return next(iter(self.weights.values()), None) or _refuse("weights")

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """A small integer tensor."""
        entry = self.entry(name)
        return np.frombuffer(entry.data, _INTEGERS[entry.dtype]).copy()

    def store(self, name: str, values: np.ndarray[Any, Any]) -> None:
        """Write an integer tensor back, with its length."""
        entry = self.entry(name)
        entry.data, entry.shape = values.astype(_INTEGERS[entry.dtype]).tobytes(), [int(values.size)]

    def rows(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor of two dimensions as bytes, [rows, bytes of a row]."""
        entry = self.entry(name)
        if len(entry.shape) != 2:
            _refuse(name)
        return np.frombuffer(entry.data, np.uint8).reshape(entry.shape[0], -1).copy()


def parse(data: bytes) -> Weights:
    """A valid safetensors file."""
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    metadata = table.pop("__metadata__", {})
    base = 8 + length
    ordered = sorted(table.items(), key=lambda item: item[1]["data_offsets"])
    return Weights([Entry(name, row["dtype"], list(row["shape"]), data[base + row["data_offsets"][0] : base + row["data_offsets"][1]]) for name, row in ordered], metadata)


def traits(draft: Draft) -> frozenset[str]:
    """Words that a mutation may ask for."""
    names = {entry.name: entry for item in draft.weights.values() for entry in item.entries}
    has = names.__contains__
    config = draft.config
    backbone = config.get("transformer_layer_config", config)
    native = "speculators_model_type" not in config
    reduced = has("d2t")
    found = {
        "single": draft.index is None and len(draft.weights) == 1,
        "reduced": reduced,
        "full": not reduced,
        "markov": has("markov_head.markov_w1.weight"),
        "gated": has("markov_head.gate_proj.weight"),
        "rnn": has("markov_head.joint_proj.weight"),
        "confidence": has("confidence_head.proj.weight"),
        "embed": has("embed_tokens.weight"),
        "head": has("lm_head.weight"),
        "sliding": "sliding_attention" in (backbone.get("layer_types") or []),
        "native": native,
        "speculators": not native,
        "anchor": config.get("sample_from_anchor") is True,
        "bonus": config.get("sample_from_anchor") is False,
        "trained": "/trained/" in draft.name,
    }
    found["vanilla"] = found["markov"] and not found["gated"] and not found["rnn"]
    if reduced:
        targets = draft.numbers("d2t") + np.arange(names["d2t"].shape[0])
        found["wide"] = bool(targets[-1] + targets.size > backbone.get("vocab_size", 0))
    return frozenset(word for word, holds in found.items() if holds)


def _refuse(what: object) -> Any:
    raise NotApplicable(str(what))


def _find(draft: Draft, pointer: str, *, create: bool = False, table: Any = None) -> tuple[Any, Any]:
    """The container and the key of a JSON pointer. Flat configs stand in for nested ones, and one spelling of the taps for the other."""
    if table is None and not draft.has_config:
        _refuse(pointer)
    root = draft.config if table is None else table
    if "transformer_layer_config" not in root:
        pointer = pointer.removeprefix("/transformer_layer_config")
    if "aux_hidden_state_layer_ids" not in root and pointer.startswith("/aux_hidden_state_layer_ids"):
        pointer = pointer.replace("aux_hidden_state_layer_ids", "target_layer_ids")
    parts = pointer.strip("/").split("/")
    for part in parts[:-1]:
        if isinstance(root, dict) and part not in root and create and part in ("dflash_config", "dspark_config"):
            root[part] = {}
        try:
            root = root[int(part)] if isinstance(root, list) else root[part]
        except (KeyError, IndexError, TypeError):
            _refuse(pointer)
    if not isinstance(root, dict | list):
        _refuse(pointer)
    return root, int(parts[-1]) if isinstance(root, list) else parts[-1]


def _get(draft: Draft, pointer: str) -> Any:
    table, key = _find(draft, pointer)
    try:
        return table[key]
    except (KeyError, IndexError):
        return _refuse(pointer)


def _set(draft: Draft, pointer: str, value: Any) -> None:
    """Another value for a key that is there."""
    _get(draft, pointer)
    _put(draft, pointer, value)


def _put(draft: Draft, pointer: str, value: Any) -> None:
    """A key, whether it is there or not."""
    table, key = _find(draft, pointer, create=True)
    table[key] = value


def _delete(draft: Draft, pointer: str) -> None:
    _get(draft, pointer)
    table, key = _find(draft, pointer)
    del table[key]


def _delete_if(draft: Draft, pointer: str) -> None:
    try:
        _delete(draft, pointer)
    except NotApplicable:
        return


def _list(draft: Draft, pointer: str) -> list[Any]:
    value = _get(draft, pointer)
    return value if isinstance(value, list) and len(value) > 1 else _refuse(pointer)


def _flip(draft: Draft, pointer: str) -> None:
    value = _get(draft, pointer)
    _set(draft, pointer, not value if isinstance(value, bool) else _refuse(pointer))


def _copy_item(draft: Draft, pointer: str, to: int, source: int) -> None:
    items = _list(draft, pointer)
    items[to] = items[source]


def _set_last(draft: Draft, pointer: str, value: Any) -> None:
    _list(draft, pointer)[-1] = value


def _copy_key(draft: Draft, source: str, to: str) -> None:
    value = _get(draft, source)
    if "speculators_model_type" not in draft.config and to == "/target_layer_ids":
        _refuse(to)
    _put(draft, to, copy.deepcopy(value))


def _remove(draft: Draft, path: str) -> None:
    if path == "config.json":
        draft.has_config = False if draft.has_config else _refuse(path)
    elif draft.weights.pop(path, None) is None:
        _refuse(path)


def _split(draft: Draft, count: int) -> None:
    if len(draft.weights) != 1 or draft.index is not None:
        _refuse("split")
    whole = draft.first()
    size = -(-len(whole.entries) // count)
    names = [f"model-{number + 1:05d}-of-{count:05d}.safetensors" for number in range(count)]
    draft.weights = {name: Weights(whole.entries[number * size : (number + 1) * size], dict(whole.metadata)) for number, name in enumerate(names)}
    total = sum(len(entry.data) for entry in whole.entries)
    draft.index = {"metadata": {"total_size": total}, "weight_map": {entry.name: name for name, item in draft.weights.items() for entry in item.entries}}


def _index(draft: Draft, pointer: str, value: Any) -> None:
    table, key = _find(draft, pointer, table=draft.index)
    table[key] = value


def _index_delete(draft: Draft, name: str) -> None:
    draft.entry(name)
    del draft.index["weight_map"][name]


def _index_swap(draft: Draft, name: str) -> None:
    draft.entry(name)
    current = draft.index["weight_map"][name]
    draft.index["weight_map"][name] = next(path for path in draft.weights if path != current)


def _index_add(draft: Draft, name: str) -> None:
    draft.index["weight_map"][name] = next(iter(draft.weights), None) or _refuse(name)


def _duplicate_in_shards(draft: Draft, name: str) -> None:
    entry = draft.entry(name)
    for item in draft.weights.values():
        if entry not in item.entries:
            item.entries.append(copy.deepcopy(entry))


def _drop(draft: Draft, name: str) -> None:
    _drop_matching(draft, re.escape(name))


def _drop_matching(draft: Draft, pattern: str) -> None:
    before = sum(len(item.entries) for item in draft.weights.values())
    for item in draft.weights.values():
        item.entries = [entry for entry in item.entries if not re.fullmatch(pattern, entry.name)]
    if before == sum(len(item.entries) for item in draft.weights.values()):
        _refuse(pattern)
    if draft.index is not None:
        draft.index["weight_map"] = {name: path for name, path in draft.index["weight_map"].items() if not re.fullmatch(pattern, name)}


def _rename(draft: Draft, pattern: str, replacement: str) -> None:
    changed = False
    for item in draft.weights.values():
        for entry in item.entries:
            new = re.sub(f"^{pattern}$", replacement, entry.name)
            changed |= new != entry.name
            if draft.index is not None and new != entry.name:
                draft.index["weight_map"][new] = draft.index["weight_map"].pop(entry.name)
            entry.name = new
    if not changed:
        _refuse(pattern)


def _add_tensor(draft: Draft, name: str, dtype: str, shape: list[int]) -> None:
    path = next(iter(draft.weights), None) or _refuse(name)
    draft.weights[path].entries.append(Entry(name, dtype, list(shape), bytes(int(np.prod(shape)) * DTYPE_BITS[dtype] // 8)))
    if draft.index is not None:
        draft.index["weight_map"][name] = path


def _add(draft: Draft, name: str, dtype: str, length: str) -> None:
    try:
        size = _get(draft, length)
    except NotApplicable:
        size = _get(draft, "/transformer_layer_config/vocab_size")
    _add_tensor(draft, name, dtype, [size])


def _retype(draft: Draft, name: str, dtype: str) -> None:
    entry = draft.entry(name)
    if entry.dtype in _INTEGERS:
        kind = {**_INTEGERS, "F32": "<f4"}.get(dtype) or _refuse(name)
        entry.data = np.frombuffer(entry.data, _INTEGERS[entry.dtype]).astype(kind).tobytes()
    else:
        entry.data = bytes(len(entry.data) * DTYPE_BITS[dtype] // DTYPE_BITS[entry.dtype])
    entry.dtype = dtype


def _crop(draft: Draft, name: str, axis: int, by: int) -> None:
    entry = draft.entry(name)
    width = DTYPE_BITS[entry.dtype] // 8
    array = np.frombuffer(entry.data, np.uint8).reshape(*entry.shape, width)
    if entry.shape[axis] <= -by:
        _refuse(name)
    array = array[:by] if axis == 0 else array[:, :by]
    entry.data, entry.shape = array.tobytes(), list(array.shape[:-1])


def _crop_rows_to(draft: Draft, name: str, count: int) -> None:
    rows = draft.entry(name).shape[0]
    if rows <= count:
        _refuse(name)
    _crop(draft, name, 0, count - rows)


def _reshape(draft: Draft, name: str, shape: list[int]) -> None:
    entry = draft.entry(name)
    total = int(np.prod(entry.shape))
    entry.shape = [total if item == -1 else item for item in shape]


def _transpose(draft: Draft, name: str) -> None:
    entry = draft.entry(name)
    if entry.shape[0] == entry.shape[1]:
        _refuse(name)
    entry.shape = entry.shape[::-1]


def _absolute(draft: Draft) -> None:
    d2t = draft.numbers("d2t")
    draft.store("d2t", d2t + np.arange(d2t.size))


def _value(draft: Draft, name: str, at: int | str, value: int) -> None:
    numbers = draft.numbers(name)
    numbers[int(np.flatnonzero(numbers)[0]) if at == "first-true" else at] = value
    draft.store(name, numbers)


def _targets(draft: Draft) -> np.ndarray[Any, Any]:
    d2t = draft.numbers("d2t")
    return d2t + np.arange(d2t.size)


def _swap_targets(draft: Draft, one: int, other: int) -> None:
    targets = _targets(draft)
    targets[[one, other]] = targets[[other, one]]
    draft.store("d2t", targets - np.arange(targets.size))


def _repeat_target(draft: Draft, at: int) -> None:
    targets = _targets(draft)
    targets[at] = targets[at - 1]
    draft.store("d2t", targets - np.arange(targets.size))


def _move_bit(draft: Draft) -> None:
    mask = draft.numbers("t2d")
    ones, zeros = np.flatnonzero(mask), np.flatnonzero(mask == 0)
    mask[ones[len(ones) // 2]], mask[zeros[len(zeros) // 2]] = 0, 1
    draft.store("t2d", mask)


def _set_bits(draft: Draft, count: int) -> None:
    mask = draft.numbers("t2d")
    mask[np.flatnonzero(mask == 0)[:count]] = 1
    draft.store("t2d", mask)


def _invert(draft: Draft, name: str) -> None:
    draft.store(name, 1 - draft.numbers(name))


def _fill(draft: Draft, name: str, value: int) -> None:
    draft.store(name, np.full(draft.numbers(name).size, value))


def _arange(draft: Draft, name: str) -> None:
    draft.store(name, np.arange(draft.numbers(name).size))


def _remap(draft: Draft) -> None:
    """Other kept tokens, in both tables: consistent in itself."""
    mask = draft.numbers("t2d")
    ones, zeros = np.flatnonzero(mask), np.flatnonzero(mask == 0)
    count = min(len(ones), len(zeros)) // 2
    mask[ones[:count]], mask[zeros[:count]] = 0, 1
    targets = np.flatnonzero(mask)
    draft.store("t2d", mask)
    draft.store("d2t", targets - np.arange(targets.size))


def _roll(draft: Draft, name: str, by: int) -> None:
    draft.entry(name).data = np.roll(draft.rows(name), by, axis=0).tobytes()


def _head_first_rows(draft: Draft) -> None:
    """Rows in the order that an absolute table read as offsets would give: the first half repeated."""
    rows = draft.rows("lm_head.weight")
    half = len(rows) // 2
    rows[half : 2 * half] = rows[:half]
    draft.entry("lm_head.weight").data = rows.tobytes()


def _bits(entry: Entry, value: float) -> bytes:
    single = np.array([value], "<f4")
    kinds = {"F32": single.tobytes, "F16": lambda: single.astype("<f2").tobytes(), "BF16": lambda: single.tobytes()[2:]}
    return kinds[entry.dtype]() if entry.dtype in kinds else _refuse(entry.dtype)


def _poke(draft: Draft, name: str, value: str) -> None:
    entry = draft.entry(name)
    bits = _bits(entry, float(value))
    middle = len(entry.data) // 2 // len(bits) * len(bits)
    entry.data = entry.data[:middle] + bits + entry.data[middle + len(bits) :]


def _fill_float(draft: Draft, name: str, value: str) -> None:
    entry = draft.entry(name)
    bits = _bits(entry, float(value))
    entry.data = bits * (len(entry.data) // len(bits))


def _fill_init(draft: Draft, name: str, spread: float) -> None:
    """Fresh normal values, as initialisation leaves them."""
    entry = draft.entry(name)
    values = np.random.default_rng(0).normal(0, spread, int(np.prod(entry.shape))).astype("<f4")
    if entry.dtype != "BF16":
        _refuse(entry.dtype)
    entry.data = (values.view("<u4") >> 16).astype("<u2").tobytes()


def _change_row(draft: Draft, name: str, row: int) -> None:
    rows = draft.rows(name)
    rows[row] ^= 1
    draft.entry(name).data = rows.tobytes()


def _last(edit: Callable[[bytes], bytes]) -> Callable[[Draft], None]:
    return lambda draft: draft.first().last.append(edit)


def _truncate(draft: Draft, size: int) -> None:
    _last(lambda data: data[:size])(draft)


def _length(draft: Draft, value: int) -> None:
    _last(lambda data: value.to_bytes(8, "little") + data[8:])(draft)


def _metadata(draft: Draft, key: str, value: Any) -> None:
    metadata = draft.first().metadata
    if value is None:
        metadata.pop(key, None) or _refuse(key)
    else:
        metadata[key] = value


def _write(draft: Draft, path: str, text: str) -> None:
    draft.other[path] = text.encode()


EDITS: dict[str, Callable[..., None]] = {
    "set": _set,
    "put": _put,
    "delete": _delete,
    "delete?": _delete_if,
    "require": lambda draft, pointer: _get(draft, pointer) and None,
    "flip": _flip,
    "add-to": lambda draft, pointer, by: _set(draft, pointer, _get(draft, pointer) + by),
    "pop": lambda draft, pointer: _list(draft, pointer).pop() and None,
    "reverse": lambda draft, pointer: _list(draft, pointer).reverse(),
    "copy-item": _copy_item,
    "set-last": _set_last,
    "copy-key": _copy_key,
    "config-text": lambda draft, old, new: draft.config_text.append((old, new)),
    "tp": lambda draft, degree: setattr(draft, "tp", (degree,)),
    "write": _write,
    "cut-file": lambda draft, path, size: draft.other.update({path: draft.other[path][:size]}),
    "pad-file": lambda draft, path, size: draft.other.update({path: b" " * size}),
    "remove": _remove,
    "remove-weights": lambda draft: draft.first() and draft.weights.clear(),
    "copy-file": lambda draft, source, to: draft.weights.update({to: copy.deepcopy(draft.weights[source])}),
    "split": _split,
    "index": _index,
    "index-delete": _index_delete,
    "index-swap": _index_swap,
    "index-add": _index_add,
    "duplicate-in-shards": _duplicate_in_shards,
    "drop": _drop,
    "drop-matching": _drop_matching,
    "rename": _rename,
    "add": _add,
    "add-tensor": _add_tensor,
    "retype": _retype,
    "crop": _crop,
    "crop-rows-to": _crop_rows_to,
    "reshape": _reshape,
    "transpose": _transpose,
    "absolute": _absolute,
    "value": _value,
    "swap-targets": _swap_targets,
    "repeat-target": _repeat_target,
    "move-bit": _move_bit,
    "set-bits": _set_bits,
    "invert": _invert,
    "fill": _fill,
    "arange": _arange,
    "remap": _remap,
    "roll": _roll,
    "head-first-rows": _head_first_rows,
    "poke": _poke,
    "fill-float": _fill_float,
    "fill-init": _fill_init,
    "change-row": _change_row,
    "truncate": _truncate,
    "append": lambda draft, count: _last(lambda data: data + bytes(count))(draft),
    "overwrite": lambda draft, text: _last(lambda _: text.encode())(draft),
    "length": _length,
    "metadata": _metadata,
    "header-text": lambda draft, old, new: draft.first().text.append((old, new)),
    "duplicate-entry": lambda draft: setattr(draft.first(), "twice", True),
    "entry-set": lambda draft, name, key, value: draft.entry(name).override.update({key: value}),
    "entry-delete": lambda draft, name, key: draft.entry(name).override.update({key: None}),
    "offsets": lambda draft, name, by: setattr(draft.entry(name), "shift", by),
    "hole": lambda draft, count: setattr(draft.first(), "hole", count),
}
"""All edits by name."""
