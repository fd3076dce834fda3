"""Sampled verification is lossless: Pearson's chi-squared test against the target's own distribution, level 0.001, fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from speculators_convert.smoke.engine import decode, loop
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.sample import Sampler, Uniforms, accept, invert, probabilities, scatter
from speculators_convert.smoke.engine.target import Target, load_target

LIBRARY = Path(__file__).parents[2] / "fixtures" / "library"
LEVEL = 0.001
TEMPERATURE = 1.2
ROWS = 4000
PROMPT = [5, 17, 40, 8, 71, 33]


def p_value(counts: Tensor, expected: Tensor) -> float:
    """Pearson's test; cells that expect fewer than 5 are pooled."""
    rare = expected < 5
    counts, expected = (torch.cat((cells[~rare], cells[rare].sum()[None])).double() for cells in (counts, expected))
    keep = expected > 0
    assert counts[~keep].sum() == 0
    statistic = ((counts[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return float(torch.special.gammaincc((keep.sum() - 1).double() / 2, statistic / 2))


@pytest.fixture(scope="module")
def library_target() -> Target:
    target = load_target(LIBRARY / "target", (0, 2), Placement())
    with torch.no_grad():
        target.model.lm_head.weight.mul_(4)
    return target


def library_draft(name: str, opened: Callable[[Path], Any], target: Target) -> Draft:
    files = opened(LIBRARY / "0.9.0" / name)
    return Draft(Reading(files.spec), read_weights(files.spec, files.source, Placement()), target.shared)


def marginals(target: Target) -> list[Tensor]:
    """The target's exact probability [96] of each token as output 0, 1 and 2."""
    first = distribution(target, torch.tensor([PROMPT]))[0]
    tokens = torch.arange(96)
    second = distribution(target, torch.cat((torch.tensor([PROMPT]).expand(96, -1), tokens[:, None]), 1))
    pairs = torch.cartesian_prod(tokens, tokens)
    third = distribution(target, torch.cat((torch.tensor([PROMPT]).expand(len(pairs), -1), pairs), 1)).view(96, 96, 96)
    joint = first[:, None] * second
    return [first, joint.sum(0), (joint[..., None] * third).sum((0, 1))]


@torch.no_grad()
def distribution(target: Target, ids: Tensor) -> Tensor:
    return probabilities(target.model(input_ids=ids, logits_to_keep=1).logits[:, -1], TEMPERATURE)


@pytest.mark.parametrize("name", ["vanilla-anchor-full", "gated-bonus-reduced", "rnn-anchor-reduced"])
def test_each_output_token_has_the_targets_distribution(name: str, opened: Callable[[Path], Any], library_target: Target) -> None:
    draft = library_draft(name, opened, library_target)
    runs = loop.generate(draft, library_target, [PROMPT] * ROWS, loop.Limits(3), steps=Sampler.seeded(TEMPERATURE, list(range(ROWS))).steps(draft.gamma))
    assert sum(sum(run.accepted) for run in runs) > ROWS / 10
    for place, exact in enumerate(marginals(library_target)):
        counts = torch.bincount(torch.tensor([run.tokens[place] for run in runs]), minlength=96)
        assert p_value(counts, exact * ROWS) > LEVEL


def draws(rule: Callable[..., decode.Accepted], rows: int) -> tuple[Tensor, Tensor]:
    """First token of `rows` rounds under `rule`, for fixed p and q with q zero on a third of the vocabulary; and p."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, 2, 12, generator=generator, dtype=torch.float64)
    q = scatter(torch.rand(1, 1, 8, generator=generator, dtype=torch.float64).softmax(-1), torch.tensor([0, 2, 3, 4, 6, 8, 9, 11]), 12).expand(rows, 1, 12)
    numbers = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    tokens = invert(q[:, 0], numbers[:, 0])[:, None]
    proposal = decode.Proposal(tokens, torch.tensor(True), q)
    round_ = rule(proposal, logits.expand(rows, 2, 12), 1.0, Uniforms(numbers[:, :1], numbers[:, 1:2], numbers[:, 2]))
    return torch.bincount(round_.tokens[:, 0], minlength=12), probabilities(logits[0, 0], 1.0)


def test_one_round_is_lossless() -> None:
    counts, p = draws(accept, 50_000)
    assert p_value(counts, p * 50_000) > LEVEL


def test_the_test_sees_a_rule_that_is_not_lossless() -> None:
    def redraw_from_p(proposal: decode.Proposal, logits: Tensor, temperature: float, uniforms: Uniforms) -> decode.Accepted:
        right = accept(proposal, logits, temperature, uniforms)
        again = invert(probabilities(logits[:, 0], temperature), uniforms.after)
        return right._replace(tokens=torch.where(right.counts[:, None] > 0, right.tokens, again[:, None]))

    counts, p = draws(redraw_from_p, 50_000)
    assert p_value(counts, p * 50_000) < LEVEL


def test_unmapped_columns_are_exactly_zero() -> None:
    ids = torch.tensor([1, 4, 5])
    whole = scatter(torch.tensor([[0.2, 0.3, 0.5]]), ids, 8)
    assert whole.tolist() == [[0, pytest.approx(0.2), 0, 0, pytest.approx(0.3), pytest.approx(0.5), 0, 0]]
    assert (whole[0, [0, 2, 3, 6, 7]] == 0).all()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_without_weight_is_never_drawn(uniform: float) -> None:
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    assert int(invert(weights, torch.tensor([uniform], dtype=torch.float64))) in (1, 3)


def test_a_request_draws_the_same_tokens_alone_and_in_company(opened: Callable[[Path], Any], library_target: Target) -> None:
    draft = library_draft("gated-bonus-reduced", opened, library_target)
    prompts = [PROMPT, PROMPT[:3], [9, 9, 9, 9, 9, 9, 9, 9, 9]]
    together = loop.generate(draft, library_target, prompts, loop.Limits(12), steps=Sampler.seeded(0.8, [4, 5, 6]).steps(draft.gamma))
    alone = [
        loop.generate(draft, library_target, [prompt], loop.Limits(12), steps=Sampler.seeded(0.8, [seed]).steps(draft.gamma))[0]
        for seed, prompt in zip((4, 5, 6), prompts, strict=True)
    ]
    assert together == alone
