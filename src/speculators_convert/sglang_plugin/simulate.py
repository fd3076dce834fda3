"""Simulated acceptance (`SGLANG_SIMULATE_ACC_LEN`, a benchmark feature): the bonus token is the target's at the drawn boundary.

SGLang 0.5.23 replaces the accepted length and, for greedy requests, keeps the bonus of the real one: a token that the
target gave after another prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def accept_outs(original: Callable[..., Any], *, bonus: Tensor, **rest: Any) -> Any:
    """SGLang's bookkeeping of one step, with the bonus [requests] taken from the row behind the drawn length."""
    length, logits = rest.get("simulated_correct_len"), rest.get("target_logits")
    if length is not None and logits is not None and rest.get("simulate_bonus_sampling_info") is None:
        bonus = boundary_token(logits, length, rest["verify_num_draft_tokens"]).to(bonus.dtype).view_as(bonus)
    return original(bonus=bonus, **rest)


def boundary_token(logits: Tensor, length: Tensor, width: int) -> Tensor:
    """The most likely token of row `length` [1] of each request, [requests]; `logits` [requests x width, vocab]."""
    rows = logits.view(-1, width, logits.shape[-1])
    return rows.index_select(1, length.reshape(1).long()).squeeze(1).argmax(-1)


def fold_bonus(original: Callable[..., None], epilogue: Any, **given: Any) -> None:
    """The same inside the verify graph: SGLang has the code behind `SGLANG_DSPARK_SIMULATE_FOLD`; here it is always on."""
    original(epilogue, **{**given, "simulate_fold": given.get("simulated_correct_len") is not None})
