"""Answers of a server in the terms of `smoke.compare`."""

from __future__ import annotations

from collections.abc import Sequence

from speculators_convert.errors import SmokeError
from speculators_convert.serving.client import Answer
from speculators_convert.serving.config import ServerConfig
from speculators_convert.smoke.compare import Drafted


def drafted(server: ServerConfig, gamma: int, answers: Sequence[Answer], *, concurrency: int = 1, temperature: float = 0.0, seconds: float = 0.0) -> Drafted:
    """The answers of one pass over the prompts. The order of accepted counts within a request is not known; their sum and spread are."""
    return Drafted(
        mode=server.mode,
        tp=server.tp,
        temperature=temperature,
        dtype=server.dtype,
        gamma=gamma,
        tokens=tuple(answer.output_ids for answer in answers),
        accepted=tuple(counts(answer) for answer in answers),
        seconds=seconds,
        concurrency=concurrency,
        server=server.name,
    )


def counts(answer: Answer) -> tuple[int, ...]:
    """Accepted tokens per verify step, smallest first; `SmokeError` when the server's counters contradict each other."""
    found = tuple(count for count, steps in enumerate(answer.histogram) for _ in range(steps))
    if (len(found), sum(found)) != (answer.verify_steps, answer.accepted):
        raise SmokeError(
            "the server's counters contradict each other",
            where=f"request {answer.request}",
            measured=f"{answer.verify_steps} steps and {answer.accepted} accepted tokens beside a histogram of {len(found)} steps and {sum(found)} tokens",
            expected="one account",
        )
    return found
