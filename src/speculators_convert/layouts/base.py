"""What a layout offers, and the choices that a user may make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.pairing import Pairing
from speculators_convert.plan import RewritePlan
from speculators_convert.spec import DraftSpec


@dataclass(frozen=True, slots=True)
class Options:
    """Choices beside the draft itself. `pairing` holds the target's facts when `--target` was given."""

    pairing: Pairing | None = None


class Layout(Protocol):
    """One packaging to write."""

    name: str
    title: str

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """The rewrite; `RefusedError` names what the layout cannot express, before anything is written."""
