"""What a layout offers, and what it may be given beside the draft itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.spec import DraftSpec
from speculators_convert.target.head_comparison import HeadComparison
from speculators_convert.target.pairing import Pairing
from speculators_convert.target.vocabulary import VocabularyTables

DEFAULT_RANK_PAD = 8


@dataclass(frozen=True, slots=True)
class Kept:
    """A vocabulary to reduce a draft to: ascending target ids, and how they were chosen."""

    target_ids: Sequence[int]
    why: str


@dataclass(frozen=True, slots=True)
class Options:
    """Evidence and choices. A field is None when the call did not ask for it; `prepare.gather` fills what a layout needs."""

    pairing: Pairing | None = None
    """The target's facts, with `--target`."""
    tables: VocabularyTables = field(default_factory=lambda: VocabularyTables(None, None))
    heads: HeadComparison | None = None
    """Each row of the draft's head against the target's."""
    rank_pad: int = DEFAULT_RANK_PAD
    """Columns that a dense rewrite adds to the Markov rank."""
    tp: int | None = None
    """Ranks to split the vocabulary-parallel heads over, with `--tp`."""
    kept: Kept | None = None
    """The vocabulary to reduce to, with `--reduce-vocab`."""
    copy_code: bool = False
    """Code travels along, with `--copy-code`."""


class Layout(Protocol):
    """One packaging to write."""

    name: str
    title: str
    compares_heads: bool
    """Whether a plan needs `Options.heads`."""

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """The rewrite; `RefusedError` names what the layout cannot express, before anything is written."""
