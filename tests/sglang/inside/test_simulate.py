"""Simulated acceptance through SGLang's own bookkeeping: the bonus is the target's token behind the drawn length."""

import pytest
import torch
from sglang.srt.speculative.dspark_components import dspark_verify
from sglang.srt.speculative.dspark_components.dspark_verify import DsparkVerifyEpilogue
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite

pytestmark = pytest.mark.usefixtures("world")
GAMMA, WIDTH, VOCAB, REQUESTS = 3, 4, 11, 2
TARGET = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
"""Most likely token of each row."""


class NoSync:
    """One rank: nothing to agree on."""

    def sync(self, site, tokens):
        return tokens

    def enabled(self, site):
        return False


def outs(function, *, length: int | None, bonus: list[int]):
    logits = torch.zeros(REQUESTS * WIDTH, VOCAB).scatter_(1, TARGET.view(-1, 1), 9.0)
    return function(
        correct_len=torch.tensor([2, 0]), bonus=torch.tensor(bonus), cap_trim_lens=torch.zeros(REQUESTS, dtype=torch.int32), prefix_lens=torch.tensor([20, 30]),
        draft_tokens=torch.tensor([[1, 2, 9], [9, 9, 9]]), gamma=GAMMA, verify_num_draft_tokens=WIDTH, tp_sync=NoSync(),
        sync_site=SpecTpSyncSite.DSPARK_ACCEPT_GREEDY, simulated_correct_len=None if length is None else torch.tensor([length]), target_logits=logits,
    )  # fmt: skip


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_bonus_stands_behind_the_drawn_length(length):
    found = outs(dspark_verify.build_accept_outs, length=length, bonus=[3, 5])
    assert found.bonus.tolist() == TARGET[:, length].tolist()
    assert found.out_tokens[:, length].tolist() == TARGET[:, length].tolist()
    assert found.commit_lens.tolist() == [length + 1] * REQUESTS


def test_stock_keeps_the_bonus_of_the_real_length():
    found = outs(dspark_verify.build_accept_outs.__wrapped__, length=1, bonus=[3, 5])
    assert found.bonus.tolist() == [3, 5] != TARGET[:, 1].tolist()


def test_measured_acceptance_is_untouched():
    found, stock = (outs(function, length=None, bonus=[3, 5]) for function in (dspark_verify.build_accept_outs, dspark_verify.build_accept_outs.__wrapped__))
    assert found.bonus.tolist() == stock.bonus.tolist() == [3, 5]
    assert found.out_tokens.tolist() == stock.out_tokens.tolist()


@pytest.mark.parametrize(("simulated", "folds", "stock_folds"), [(torch.tensor([1]), True, False), (None, False, False)])
def test_the_verify_graph_folds_the_bonus_in_while_acceptance_is_simulated(simulated, folds, stock_folds):
    given = {"max_bs": 2, "verify_num_draft_tokens": WIDTH, "device": "cpu", "tp_sync": NoSync(), "simulated_correct_len": simulated}
    assert DsparkVerifyEpilogue(**given).simulate_fold is folds
    stock = DsparkVerifyEpilogue.__new__(DsparkVerifyEpilogue)
    DsparkVerifyEpilogue.__init__.__wrapped__(stock, **given)
    assert stock.simulate_fold is stock_folds
