"""Fixture folders, and copies of them with one thing changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speculators_convert.container.header import Tensor, encode, parse

FIXTURES = Path(__file__).parent.parent / "fixtures"
TRAINED = FIXTURES / "trained"
TARGET = TRAINED / "tiny-target"
PROMPTS = TRAINED / "prompts.jsonl"
FULL, BONUS, GATED = (TRAINED / name for name in ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated"))
SLIDING = tuple(TRAINED / name for name in ("tiny-sliding-causal", "tiny-sliding-noncausal"))
DRAFTS = (FULL, BONUS, GATED, *SLIDING)


def copy(source: Path, out: Path) -> Path:
    """A writable copy of a folder."""
    shutil.copytree(source, out)
    return out


def edit_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change config.json in place."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return folder


def read_tensors(path: Path) -> dict[str, tuple[Tensor, bytes]]:
    """Name to header entry and data."""
    data = path.read_bytes()
    header = parse(data[: 8 + int.from_bytes(data[:8], "little")], len(data))
    return {tensor.name: (tensor, data[tensor.start : tensor.stop]) for tensor in header.tensors}


def write_tensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """A safetensors file of these tensors, in order."""
    entries = [Tensor(name, dtype, shape, 0, len(data)) for name, (dtype, shape, data) in tensors.items()]
    path.write_bytes(encode(entries, {"format": "pt"}) + b"".join(data for _, _, data in tensors.values()))


def shard(folder: Path, parts: int = 3) -> Path:
    """Split model.safetensors into `parts` files with an index."""
    whole = folder / "model.safetensors"
    tensors = read_tensors(whole)
    names, weight_map = list(tensors), {}
    for number in range(parts):
        path = folder / f"model-{number + 1:05d}-of-{parts:05d}.safetensors"
        chosen = names[number::parts]
        write_tensors(path, {name: (tensors[name][0].dtype, tensors[name][0].shape, tensors[name][1]) for name in chosen})
        weight_map.update(dict.fromkeys(chosen, path.name))
    total = sum(len(data) for _, data in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    whole.unlink()
    return folder
