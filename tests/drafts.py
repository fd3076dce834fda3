"""Drafts to test with: the folders of `fixtures/good`, in memory, with a changed config or changed tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.container.header import Tensor, encode, parse
from speculators_convert.formats import Reading, detect
from speculators_convert.sources import MemorySource
from speculators_convert.spec import Settings

GOOD = Path(__file__).parents[1] / "fixtures" / "good"
ABSENT = object()
"""As a value of a changed config: remove the key."""


def load(name: str, change: Mapping[str, Any] | None = None, *, drop: str = "", rename: Callable[[str], str] = str) -> Checkpoint:
    """A good draft; `change` maps dotted config paths to values, tensors that contain `drop` are left out."""
    files = {path.name: path.read_bytes() for path in (GOOD / name).iterdir() if path.name != "expected.json"}
    config = json.loads(files.get("config.json", b"{}"))
    for dotted, value in (change or {}).items():
        *parents, key = dotted.split(".")
        table = config
        for parent in parents:
            table = table.setdefault(parent, {})
        if value is ABSENT:
            table.pop(key, None)
        else:
            table[key] = value
    if "config.json" in files:
        files["config.json"] = json.dumps(config).encode()
        files["model.safetensors"] = _tensors(files["model.safetensors"], drop, rename)
    return collect(MemorySource(files))


def _tensors(data: bytes, drop: str, rename: Callable[[str], str]) -> bytes:
    header = parse(data, len(data))
    kept = [item for item in header.tensors if not drop or drop not in item.name]
    listed = [Tensor(rename(item.name), item.dtype, item.shape, 0, item.size_bytes) for item in kept]
    return encode(listed, header.metadata) + b"".join(data[item.start : item.stop] for item in kept)


def read(checkpoint: Checkpoint, **settings: Any) -> Reading:
    """The reading by the detected format."""
    found = detect(checkpoint).format
    assert found is not None
    return found.read(checkpoint, Settings(**settings))


def said(reading: Reading, fact: str) -> list[tuple[str, str, bool]]:
    """All evidence for a fact: what it says, where, and whether it decides."""
    return [(item.says, item.source, item.decides) for item in reading.spec.evidence if item.fact == fact]
