"""SGLang's two acceptance rules over the step logits of a reduced vocabulary: the output follows the target, unmapped tokens included."""

from types import SimpleNamespace

import pytest
import torch
from sglang.kernels.ops.speculative.dspark import blockwise_rejection
from sglang.srt.speculative.dspark_components import dspark_verify
from sglang.srt.speculative.dspark_components.dspark_draft import DraftBlockResult

from speculators_convert.sglang_plugin.block import widen

pytestmark = pytest.mark.usefixtures("world")
TARGETS = torch.tensor([1, 3, 4, 7])
WIDTH, GAMMA, ROWS = 9, 2, 6000


def drafted(seed: int, rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Blocks drawn from draft logits over four of nine tokens, and target logits over all nine."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(1, GAMMA, 4, generator=generator).expand(rows, -1, -1)
    target = torch.randn(1, GAMMA + 1, WIDTH, generator=generator).expand(rows, -1, -1).contiguous()
    ids = torch.multinomial(torch.softmax(small.reshape(-1, 4), -1), 1, generator=generator).view(rows, GAMMA)
    return widen(small.contiguous(), TARGETS, WIDTH), TARGETS[ids], target


def test_probabilities_stand_in_target_columns_and_nowhere_else():
    logits, tokens, _ = drafted(1)
    block = DraftBlockResult(
        draft_tokens=tokens, corrected_logits=logits, greedy_mask=torch.zeros(ROWS, dtype=torch.bool), temperatures=torch.full((ROWS,), 0.5), greedy_draft=False
    )
    probabilities = dspark_verify._draft_probs(block, WIDTH, "cpu")
    expected = torch.zeros(GAMMA, WIDTH)
    expected[:, TARGETS] = torch.softmax(logits[0][:, TARGETS] / 0.5, -1)
    torch.testing.assert_close(probabilities[0], expected, atol=1e-6, rtol=0)
    assert int((probabilities[0] == 0).sum()) == GAMMA * (WIDTH - len(TARGETS))


@pytest.mark.parametrize(("rule", "rows"), [("classic", 1500), ("blockwise", ROWS)])
def test_first_token_follows_the_target(rule, rows):
    """Lossless: the first emitted token is distributed as the target's softmax, although the draft knows four of nine tokens. The classic kernel is slow in the interpreter."""
    logits, tokens, target = drafted(2, rows)
    ones = torch.ones(rows)
    block = DraftBlockResult(draft_tokens=tokens, corrected_logits=logits, greedy_mask=torch.zeros(rows, dtype=torch.bool), temperatures=ones, greedy_draft=False)
    sampling = SimpleNamespace(
        is_all_greedy=False, is_any_greedy=False, need_top_k_sampling=False, need_top_p_sampling=False, need_min_p_sampling=False,
        temperatures=ones[:, None], top_ks=torch.full((rows,), WIDTH), top_ps=ones, min_ps=torch.zeros(rows), sampling_seed=None,
    )  # fmt: skip
    torch.manual_seed(4)
    correct, bonus, _ = dspark_verify.accept_draft_tokens(
        candidates=torch.cat((torch.zeros(rows, 1, dtype=torch.int64), tokens), 1), target_logits=target.reshape(-1, WIDTH), draft_block=block, sampling_info=sampling,
        draft_input=SimpleNamespace(max_top_k=WIDTH, uniform_top_k_value=None), gamma=GAMMA, verify_num_draft_tokens=GAMMA + 1,
        rejection_noise=blockwise_rejection.make_rejection_noise(9, "cpu") if rule == "blockwise" else None,
    )  # fmt: skip
    first = torch.where(correct > 0, tokens[:, 0], bonus)
    frequency = torch.bincount(first, minlength=WIDTH) / rows
    assert (frequency - torch.softmax(target[0, 0], -1)).abs().max() < 4.5 * 0.5 / rows**0.5
    assert 0 < int((correct == GAMMA).sum()) < rows
    assert not set(first.tolist()) <= set(TARGETS.tolist())
