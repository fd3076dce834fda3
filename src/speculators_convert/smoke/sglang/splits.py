"""Where a server's drafted output leaves the plain one: the target's own preference there."""

from __future__ import annotations

from collections.abc import Sequence

from speculators_convert.smoke import compare
from speculators_convert.smoke.compare import Drafted
from speculators_convert.smoke.engine import splits
from speculators_convert.smoke.engine.loop import Generation
from speculators_convert.smoke.engine.target import Target
from speculators_convert.smoke_result import Equivalence


def classify(target: Target, requests: Sequence[Sequence[int]], plain: Sequence[Sequence[int]], run: Drafted, against: str) -> Equivalence:
    """Every first split of `run` from `plain`, judged."""
    found = []
    for index, (tokens, other) in enumerate(zip(run.tokens, plain, strict=True)):
        at = compare.outcome(index, tokens, run.accepted[index], other).first_difference
        if at is None:
            continue
        gaps = splits.measure(target, requests[index], list(other), Generation(list(tokens), []), at, run.gamma + 1)
        pair = (other[at] if at < len(other) else None, tokens[at] if at < len(tokens) else None)
        found.append(compare.judge(index, at, pair, gaps, run.dtype))
    return compare.report(run.mode, run.tp, len(run.tokens), found, run.dtype).model_copy(update={"against": against, "concurrency": run.concurrency})
