"""What more than one layout refuses."""

from __future__ import annotations

from speculators_convert.errors import RefusedError
from speculators_convert.spec import DraftSpec


def demand_full_vocabulary(spec: DraftSpec, title: str) -> None:
    """Refuse a reduced vocabulary in a layout that has no place for d2t."""
    if spec.reduced_vocabulary:
        raise RefusedError(
            f"{title} has no reduced vocabulary",
            where="draft_vocab_size",
            measured=spec.draft_vocab_size,
            expected=f"{spec.target_vocab_size}, the target's",
            hint="use --layout speculators, or --layout sglang-dense --target REF, which writes it over the target's vocabulary",
        )
