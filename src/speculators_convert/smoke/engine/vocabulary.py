"""The draft's head: whole on one rank. `tp.py` has the same interface over several ranks."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.spec import D2T, DraftSpec


class Vocabulary(Protocol):
    """How rows of the draft vocabulary lie over ranks."""

    def slice(self, rows: Tensor) -> Tensor:
        """This rank's rows of a [draft_vocab, n] weight."""

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Largest logit and its draft id [B], lowest id first among equals, from this rank's columns [B, local]."""

    def gather(self, logits: Tensor) -> Tensor:
        """All columns [B, draft_vocab] from this rank's."""

    def agree(self, value: Tensor) -> Tensor:
        """The value of the first rank."""


class Whole:
    """All rows on this rank."""

    def slice(self, rows: Tensor) -> Tensor:
        """The weight itself."""
        return rows

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Largest logit and its draft id [B]."""
        top = logits.max(-1)
        return top.values, top.indices

    def gather(self, logits: Tensor) -> Tensor:
        """The logits themselves."""
        return logits

    def agree(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def target_ids(spec: DraftSpec, d2t: Tensor | None, rows: int, device: str) -> Tensor:
    """Target id of each draft id, int64 [draft_vocab]; `SmokeError` when one leaves the target's vocabulary."""
    draft = torch.arange(rows, device=device)
    if spec.d2t is D2T.NONE:
        ids = draft
    elif d2t is None:
        raise SmokeError("the table d2t is missing", where="d2t", measured="missing", expected=f"int64 [{rows}]")
    else:
        ids = d2t.to(torch.int64) + (draft if spec.d2t is D2T.OFFSET else 0)
    if rows and (int(ids.min()) < 0 or (spec.target_vocab_size is not None and int(ids.max()) >= spec.target_vocab_size)):
        raise SmokeError(
            "d2t leads outside the target's vocabulary",
            where="d2t",
            measured=f"{int(ids.min())}..{int(ids.max())}",
            expected=f"0..{(spec.target_vocab_size or 0) - 1}",
            hint="run inspect for the reason",
        )
    return ids
