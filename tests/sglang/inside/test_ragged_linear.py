"""GDN layers over packed verify batches: SGLang's Triton kernels in the interpreter, against a recurrence written out token by token."""

import os

os.environ["SGLANG_USE_CPU_ENGINE"] = "0"  # before SGLang is imported: the Triton kernels, not the compiled ones for CPUs

from types import SimpleNamespace

import pytest
import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateDType, Mamba2StateShape
from sglang.srt.configs.model_config import ModelConfig  # noqa: F401  (SGLang's import order)
from sglang.srt.layers.attention.hybrid_linear_attn_backend import HybridLinearAttnBackend
from sglang.srt.layers.attention.linear.gdn_backend import GDNAttnBackend
from sglang.srt.layers.attention.linear.utils import LinearAttnBackends, LinearAttnKernelBackend
from sglang.srt.layers.radix_linear_attention import RadixLinearAttention
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_context
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.ragged_verify import RaggedVerifyLayout

pytestmark = pytest.mark.usefixtures("world")
KEYS, VALUES, KEY_WIDTH, VALUE_WIDTH, KERNEL, ROW = 2, 4, 16, 16, 4, 4
CHANNELS = 2 * KEYS * KEY_WIDTH + VALUES * VALUE_WIDTH
SLOTS = [3, 1, 2]
"""Cache slot of each request, in no order."""


@pytest.fixture
def backend(world) -> GDNAttnBackend:
    """The real back end over a real pool of random states; five requests at most, since kernels index a table of that size by row of the batch."""
    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=VALUES * VALUE_WIDTH, n_groups=KEYS, num_heads=VALUES, head_dim=VALUE_WIDTH, state_size=KEY_WIDTH, conv_kernel=KERNEL
    )
    pool = HybridReqToTokenPool(
        size=5, mamba_size=4, mamba_spec_state_size=5, max_context_len=64, device="cpu", enable_memory_saver=False,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0], dtype=Mamba2StateDType(conv=torch.float32, temporal=torch.float32)),
        mamba_layer_ids=[0], enable_mamba_extra_buffer=False,
        speculative_num_draft_tokens=ROW, enable_overlap_schedule=False,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    for state in (*pool.mamba_pool.mamba_cache.conv, pool.mamba_pool.mamba_cache.temporal):
        state.copy_(torch.randn(state.shape, generator=generator))
    pool.req_index_to_mamba_index_mapping[: len(SLOTS)] = torch.tensor(SLOTS, dtype=pool.req_index_to_mamba_index_mapping.dtype)
    triton = LinearAttnKernelBackend("triton")
    runner = SimpleNamespace(
        device="cpu", server_args=get_context().server_args if hasattr(get_context(), "server_args") else None, is_draft_worker=False,
        req_to_token_pool=pool, token_to_kv_pool=None, linear_attn_backends=LinearAttnBackends(decode=triton, prefill=triton, verify=triton),
    )  # fmt: skip
    return GDNAttnBackend(runner)


@pytest.fixture
def layer() -> RadixLinearAttention:
    generator = torch.Generator().manual_seed(2)
    return RadixLinearAttention(
        layer_id=0, num_q_heads=KEYS, num_k_heads=KEYS, num_v_heads=VALUES, head_q_dim=KEY_WIDTH, head_k_dim=KEY_WIDTH, head_v_dim=VALUE_WIDTH,
        conv_weights=torch.randn(CHANNELS, KERNEL, generator=generator), bias=None, activation="silu",
        A_log=torch.rand(VALUES, generator=generator), dt_bias=torch.rand(VALUES, generator=generator),
    )  # fmt: skip


def batch_of(lengths: list[int], tokens: int) -> tuple[ForwardBatch, dict[str, torch.Tensor]]:
    """A packed verify batch and the layer's inputs; padding tokens hold numbers too, so that reading them would show."""
    requests = len(lengths)
    layout = RaggedVerifyLayout.from_verify_lens(verify_lens_cpu=lengths, device="cpu", grid=[tokens])
    ids = torch.zeros(tokens, dtype=torch.int64)
    info = DFlashVerifyInput(draft_token=ids, positions=ids, draft_token_num=ROW, ragged_verify_layout=layout)
    forward = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY, batch_size=requests, input_ids=ids, req_pool_indices=torch.arange(requests), seq_lens=torch.full((requests,), 9),
        out_cache_loc=ids, seq_lens_sum=9 * requests, positions=ids, spec_info=info,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    return forward, {name: torch.randn(tokens, width, generator=generator) for name, width in (("mixed_qkv", CHANNELS), ("a", VALUES), ("b", VALUES))}


def recurrence(layer, inputs, first: int, length: int, window: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Outputs [length, heads, width] of one request, and window and state after each token. Follows the delta rule's definition."""
    outputs, windows, states = [], [], []
    for token in range(first, first + length):
        window = torch.cat([window, inputs["mixed_qkv"][token][:, None]], 1)
        mixed = torch.nn.functional.silu((window * layer.conv_weights).sum(1))
        window = window[:, 1:]
        q, k, v = mixed.split([KEYS * KEY_WIDTH, KEYS * KEY_WIDTH, VALUES * VALUE_WIDTH])
        q, k = (torch.nn.functional.normalize(item.view(KEYS, KEY_WIDTH), dim=-1, eps=1e-6).repeat_interleave(VALUES // KEYS, 0) for item in (q, k))
        decay = torch.exp(-torch.exp(layer.A_log) * torch.nn.functional.softplus(inputs["a"][token] + layer.dt_bias))
        beta = torch.sigmoid(inputs["b"][token])
        state = state * decay[:, None, None]
        new = (v.view(VALUES, VALUE_WIDTH) - (state * k[:, None]).sum(-1)) * beta[:, None]
        state = state + new[:, :, None] * k[:, None]
        outputs.append((state * q[:, None]).sum(-1) * KEY_WIDTH**-0.5)
        windows.append(window)
        states.append(state)
    return torch.stack(outputs), windows, states


CASES = [
    pytest.param([3, 1, 4], 8, id="eager"),
    pytest.param([2, 4, 1], 7, id="eager-odd"),
    pytest.param([3, 1, 2], 12, id="padded"),
    pytest.param([1, 1, 1], 3, id="anchors-only"),
    pytest.param([4, 4, 4], 12, id="all-whole"),
]


@pytest.mark.parametrize(("lengths", "tokens"), CASES)
def test_packed_requests_follow_the_recurrence_and_only_accepted_states_stay(backend, layer, lengths, tokens):
    forward, inputs = batch_of(lengths, tokens)
    cache = backend.req_to_token_pool.mamba_pool.mamba_cache
    before = cache.conv[0][0].clone(), cache.temporal[0].clone()
    backend.init_forward_metadata(forward)
    packed = backend.forward_metadata
    out = backend.forward_extend(layer=layer, forward_batch=forward, **inputs)
    assert out.shape == (1, tokens, VALUES, VALUE_WIDTH)
    assert backend.forward_metadata is packed
    accepted, first = [max(1, length - 1) for length in lengths], 0
    expected = [recurrence(layer, inputs, sum(lengths[:row]), length, before[0][slot], before[1][slot]) for row, (slot, length) in enumerate(zip(SLOTS, lengths, strict=True))]
    for (outputs, _, _), length in zip(expected, lengths, strict=True):
        torch.testing.assert_close(out[0, first : first + length], outputs, atol=1e-4, rtol=1e-4)
        first += length
    assert (out[0, first:] == 0).all()
    assert torch.equal(cache.temporal[0], before[1])
    commit(backend, accepted)
    for slot, count, (_, windows, states) in zip(SLOTS, accepted, expected, strict=True):
        torch.testing.assert_close(cache.temporal[0][slot], states[count - 1], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(cache.conv[0][0][slot], windows[count - 1], atol=1e-6, rtol=1e-6)
    assert torch.equal(cache.temporal[0][4], before[1][4])


def commit(backend: GDNAttnBackend, accepted: list[int]) -> None:
    """SGLang's own rule for devices without its scatter kernel: the state behind each request's last accepted token."""
    cache, slots, steps = backend.req_to_token_pool.mamba_pool.mamba_cache, torch.tensor(SLOTS), torch.tensor(accepted) - 1
    for state, kept in ((cache.temporal, cache.intermediate_ssm), (cache.conv[0], cache.intermediate_conv_window[0])):
        HybridLinearAttnBackend._scatter_speculative_state_with_mask(state, kept, slots, steps)


def test_stock_mixes_requests(backend, layer):
    """Eight tokens of three requests make two rows of four: no error."""
    lengths = [3, 1, 4]
    forward, inputs = batch_of(lengths, 8)
    cache = backend.req_to_token_pool.mamba_pool.mamba_cache
    before = cache.conv[0][0].clone(), cache.temporal[0].clone()
    backend.init_forward_metadata(forward)
    out = GDNAttnBackend.forward_extend.__wrapped__(backend, layer=layer, forward_batch=forward, **inputs)
    outputs, _, _ = recurrence(layer, inputs, 3, 1, before[0][SLOTS[1]], before[1][SLOTS[1]])
    assert (out[0, 3:4] - outputs).abs().max() > 0.01


def test_a_graph_replays_with_empty_slots_and_left_over_tokens(backend, layer):
    """Metadata as a replay writes it: two slots more, no state for them, and tokens of no request behind the capped rows."""
    lengths, tokens, slots = [3, 1, 2], 20, 5
    forward, inputs = batch_of(lengths, tokens)
    cache = backend.req_to_token_pool.mamba_pool.mamba_cache
    before = cache.conv[0][0].clone(), cache.temporal[0].clone()
    backend.init_cuda_graph_state(slots, slots * ROW)
    live = forward.spec_info.ragged_verify_layout
    rows = torch.tensor([0, 1, 2, 0, 0])
    backend.forward_metadata = backend._replay_metadata(slots, rows, ForwardMode.TARGET_VERIFY, forward.spec_info, None, num_padding=2)
    starts = backend.forward_metadata.query_start_loc
    assert starts.tolist() == live.padded_to_bucket(padded_bs=slots, cap=ROW).qo_indptr_device.tolist()
    assert backend.forward_metadata.mamba_cache_indices.tolist() == [*SLOTS, -1, -1]
    forward.batch_size, forward.req_pool_indices = slots, rows
    out = backend.forward_extend(layer=layer, forward_batch=forward, **inputs)
    for row, (slot, length) in enumerate(zip(SLOTS, lengths, strict=True)):
        first = sum(lengths[:row])
        outputs, _, _ = recurrence(layer, inputs, first, length, before[0][slot], before[1][slot])
        torch.testing.assert_close(out[0, first : first + length], outputs, atol=1e-4, rtol=1e-4)
    assert (out[0, int(starts[-1]) :] == 0).all()
    assert torch.equal(cache.temporal[0], before[1])


def test_support_is_declared_by_what_the_pool_keeps(backend):
    assert backend.supports_ragged_verify_graph
    assert not GDNAttnBackend.supports_ragged_verify_graph
