"""mRoPE positions of packed verify batches against each token's own arithmetic; SGLang's own rule on the same batches."""

from types import SimpleNamespace

import pytest
import torch
from sglang.kernels.ops.speculative.dspark import dspark_verify_window
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.ragged_verify import RaggedVerifyLayout

from speculators_convert.sglang_plugin.ragged_rope import token_owners

pytestmark = pytest.mark.usefixtures("world")
PREFIXES, OFFSETS, GAMMA = [40, 17, 200, 9], [-25, None, 3, None], 5
"""Tokens so far, and how far an image moved the positions behind it (None: text only)."""
MIXED = [3, 1, 6, 2]
UNEQUAL = [5, 1, 2, 4]
"""Twelve tokens of four requests: divides evenly, so SGLang's rule gives wrong positions instead of an error."""


def verify_batch(lengths: list[int], tokens: int, offsets: list[int | None]) -> tuple[ForwardBatch, SimpleNamespace, RaggedVerifyLayout]:
    """A packed batch as DSpark builds it: the window's own positions, padding at position 0."""
    layout = RaggedVerifyLayout.from_verify_lens(verify_lens_cpu=lengths, device="cpu", grid=[tokens])
    request, within, valid = dspark_verify_window.compact_row_index(verify_lens=layout.verify_lens, padded_total=tokens, device="cpu")
    prefixes = torch.tensor(PREFIXES)
    positions = torch.where(valid, prefixes[request.clamp(max=3)] + within, 0)
    info = DFlashVerifyInput(draft_token=torch.zeros(tokens, dtype=torch.int64), positions=positions, draft_token_num=GAMMA + 1, ragged_verify_layout=layout)
    inputs = [None if item is None else SimpleNamespace(mrope_position_delta=torch.tensor([[item]])) for item in offsets]
    forward = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY, batch_size=4, input_ids=info.draft_token, req_pool_indices=torch.arange(4), seq_lens=prefixes,
        out_cache_loc=torch.zeros(tokens, dtype=torch.int64), seq_lens_sum=sum(PREFIXES), positions=positions, spec_info=info,
    )  # fmt: skip
    return forward, SimpleNamespace(spec_info=info, multimodal_inputs=inputs), layout


def expected(lengths: list[int], tokens: int, offsets: list[int | None]) -> list[int]:
    """Prefix + place in the request + the request's own offset; padding stays at 0."""
    real = [prefix + place + (offset or 0) for prefix, length, offset in zip(PREFIXES, lengths, offsets, strict=True) for place in range(length)]
    return real + [0] * (tokens - len(real))


def positions_of(rule, lengths, tokens, offsets) -> torch.Tensor:
    forward, batch, _ = verify_batch(lengths, tokens, offsets)
    rule(forward, SimpleNamespace(device="cpu"), batch)
    return forward.mrope_positions


def stock(*arguments) -> None:
    """SGLang's own rule, under the hook."""
    ForwardBatch.compute_spec_mrope_positions.__wrapped__(*arguments)


CASES = [
    pytest.param(MIXED, 12, OFFSETS, id="eager-mixed"),
    pytest.param(UNEQUAL, 12, OFFSETS, id="eager-divides"),
    pytest.param([3, 1, 6, 1], 11, OFFSETS, id="eager-odd"),
    pytest.param(MIXED, 24, OFFSETS, id="padded-to-a-graph"),
    pytest.param([1, 1, 1, 1], 6, OFFSETS, id="padding-beside-anchors-only"),
    pytest.param([3, 1, 6, 1], 18, [None] * 4, id="text-only-padded"),
    pytest.param([6, 6, 6, 6], 24, OFFSETS, id="all-whole"),
]


@pytest.mark.parametrize(("lengths", "tokens", "offsets"), CASES)
def test_each_token_has_its_own_requests_offset(lengths, tokens, offsets):
    found = positions_of(ForwardBatch.compute_spec_mrope_positions, lengths, tokens, offsets)
    assert found.shape == (3, tokens)
    assert found.dtype == torch.int64
    assert found.tolist() == [expected(lengths, tokens, offsets)] * 3


@pytest.mark.parametrize(("lengths", "tokens", "offsets"), [case for case in CASES if case.id in {"eager-mixed", "eager-divides", "padded-to-a-graph"}])
def test_stock_gives_other_requests_offsets(lengths, tokens, offsets):
    assert positions_of(stock, lengths, tokens, offsets).tolist() != [expected(lengths, tokens, offsets)] * 3


@pytest.mark.parametrize(("tokens", "offsets"), [(11, OFFSETS), (11, [None] * 4)])
def test_stock_fails_where_tokens_do_not_divide(tokens, offsets):
    """Even for text alone, on a target that knows images."""
    with pytest.raises(RuntimeError, match="invalid for input of size 11"):
        positions_of(stock, [3, 1, 6, 1], tokens, offsets)


@pytest.mark.parametrize("padded", [4, 6])
def test_owners_follow_a_layout_that_a_graph_replay_padded(padded):
    """Replay adds empty slots and gives them the tier's left-over tokens; real tokens keep their owners."""
    _, _, layout = verify_batch(MIXED, 24, OFFSETS)
    real = [request for request, length in enumerate(MIXED) for _ in range(length)]
    assert token_owners(layout.padded_to_bucket(padded_bs=padded).qo_indptr_device, 24).tolist()[: len(real)] == real
    capped = layout.padded_to_bucket(padded_bs=padded, cap=GAMMA + 1)
    assert token_owners(capped.qo_indptr_device, 24).tolist()[: len(real)] == real


def test_batches_with_rows_of_equal_length_go_to_sglang():
    forward, batch, _ = verify_batch([6] * 4, 24, OFFSETS)
    forward.spec_info.ragged_verify_layout = None
    ForwardBatch.compute_spec_mrope_positions(forward, SimpleNamespace(device="cpu"), batch)
    assert forward.mrope_positions.tolist() == [expected([6] * 4, 24, OFFSETS)] * 3
