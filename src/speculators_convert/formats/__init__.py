"""Input formats: one file each. `detect` names the one that a checkpoint is in."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.discover import objects
from speculators_convert.formats.base import Format, Reading

FORMATS: tuple[Format, ...] = tuple(sorted(objects(sys.modules[__name__], "FORMAT"), key=lambda item: item.order))


@dataclass(frozen=True, slots=True)
class Detection:
    """The recognised format and why; None when no format fits."""

    format: Format | None
    why: tuple[str, ...]


def detect(checkpoint: Checkpoint) -> Detection:
    """The first format, in the documented order, that recognises the checkpoint."""
    for candidate in FORMATS:
        why = candidate.matches(checkpoint)
        if why:
            return Detection(candidate, why)
    return Detection(None, ())


__all__ = ["FORMATS", "Detection", "Format", "Reading", "detect"]
