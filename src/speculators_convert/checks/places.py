"""Where things stand in a checkpoint's documents, for checks that look at a config key itself."""

from __future__ import annotations

from collections.abc import Mapping

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.model import JsonValue

CONFIG = "config.json"


def backbone(checkpoint: Checkpoint) -> tuple[Mapping[str, JsonValue], str]:
    """The object that describes the draft layers, and its JSON pointer: `transformer_layer_config`, or the config itself."""
    nested = checkpoint.config.get("transformer_layer_config")
    return (nested, "/transformer_layer_config") if isinstance(nested, dict) else (checkpoint.config, "")


def listed(items: list[str], limit: int = 8) -> str:
    """Names for a message: the first few and how many more."""
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {more} more" if more > 0 else "")
