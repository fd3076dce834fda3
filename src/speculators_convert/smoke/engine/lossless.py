"""Do sampled tokens follow the target's distribution? Each token's place in it is uniform if they do (Kolmogorov-Smirnov)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from speculators_convert.smoke.engine.sample import probabilities
from speculators_convert.smoke.engine.target import Target

LEVEL = 0.001
"""A p-value under it is a failure: one honest run in a thousand."""


@torch.no_grad()
def places(target: Target, prompt: Sequence[int], output: Sequence[int], temperature: float, generator: torch.Generator) -> list[float]:
    """For each output token the probability of all likelier tokens plus a random share of its own, given the tokens before it.

    Independent and uniform on [0, 1] when each token was drawn from the target's own distribution (probability integral transform,
    randomised because tokens are discrete). Likelier tokens first: a draft that pushes its favourites shows as too many small values.
    """
    ids = torch.tensor([[*prompt, *output[:-1]]], device=target.device)
    weights = probabilities(target.plain(ids, target.plain_cache(), len(output))[0], temperature).cpu()
    own = weights.gather(-1, torch.tensor(output)[:, None])
    above = (weights * (weights > own)).sum(-1)
    level = (weights * (weights == own)).sum(-1)  # equal tokens share their place
    return (above + torch.rand(len(output), generator=generator, dtype=torch.float64) * level).tolist()


def p_value(values: Sequence[float]) -> float:
    """Kolmogorov-Smirnov test against the uniform distribution, asymptotic form with Stephens' correction."""
    count, ordered = len(values), sorted(values)
    distance = max(max((rank + 1) / count - value, value - rank / count) for rank, value in enumerate(ordered))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    if scaled < 0.2:
        return 1.0  # the series needs ever more terms there, and its value is 1 to ten digits
    return min(1.0, max(0.0, 2 * sum((1 if term % 2 else -1) * math.exp(-2 * (term * scaled) ** 2) for term in range(1, 101))))
