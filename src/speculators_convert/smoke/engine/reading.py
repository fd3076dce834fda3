"""How a draft is run: its spec, plus departures that no spec can state and that `probe` and the tests try."""

from __future__ import annotations

from dataclasses import dataclass

from speculators_convert.spec import DraftSpec


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a draft. All defaults are what DSpark computes."""

    spec: DraftSpec
    block_shift: int = 0
    """Added to the positions of the block's slots."""
    hidden_norm: bool = True
    """`hidden_norm` after `fc`."""
    context_layernorm: bool = False
    """`input_layernorm` on the context too."""
    causal_block: bool | None = None
    """Causal inside the block for every layer; None leaves it to the spec."""
    markov_lag: int = 0
    """0: the Markov head sees the token before the predicted one; 1: the token before that."""
    target_head_rows: bool = False
    """Read the first rows of the target's head instead of the draft's own."""
