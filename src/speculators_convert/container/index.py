"""`model.safetensors.index.json`: which shard holds which tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speculators_convert.model import JsonValue

INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Index:
    """A parsed index: tensor name to shard path, and the declared total size if there is one."""

    weight_map: Mapping[str, str]
    total_size: int | None


def parse_index(document: JsonValue) -> Index | str:
    """The index, or a sentence that says why it is not one."""
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        return "it has no weight_map object"
    if not all(isinstance(shard, str) for shard in weight_map.values()):
        return "weight_map must map tensor names to file names"
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return Index(weight_map, total if type(total) is int else None)


def encode_index(weight_map: Mapping[str, str], total_size: int) -> JsonValue:
    """The JSON value of an index file."""
    return {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
