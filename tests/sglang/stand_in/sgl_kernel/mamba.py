"""State-space kernels in plain torch, one token after the other: what SGLang 0.5.23 calls for Qwen3.5 targets on a CPU.

Written from the definitions: a causal convolution, the gated delta rule, and two norms.
"""

import torch
from torch.nn import functional


def causal_conv1d_fn_cpu(x, weight, bias=None, activation=None, *, conv_states, has_initial_state, cache_indices, query_start_loc, **rest):
    """Prefill: `x` [channels, tokens] of packed requests; writes the last inputs of each to `conv_states`."""
    out = torch.empty_like(x)
    for row, slot in enumerate(cache_indices.tolist()):
        first, stop = int(query_start_loc[row]), int(query_start_loc[row + 1])
        window = conv_states[slot].clone() if bool(has_initial_state[row]) else torch.zeros_like(conv_states[slot])
        joined = torch.cat([window, x[:, first:stop]], 1)
        out[:, first:stop] = _convolve(joined, weight, bias, activation)
        conv_states[slot] = joined[:, joined.shape[1] - window.shape[1] :]
    return out


def causal_conv1d_update_cpu(x, conv_state, weight, bias=None, activation=None, *, conv_state_indices, intermediate_conv_window=None, intermediate_state_indices=None, **rest):
    """Decode `x` [requests, channels], which moves the state; or verify [requests, channels, tokens], which keeps each step's window aside."""
    single = x.dim() == 2
    x = x.unsqueeze(-1) if single else x
    out = torch.zeros_like(x)
    for row, slot in enumerate(conv_state_indices.tolist()):
        if slot < 0:
            continue
        joined = torch.cat([conv_state[slot], x[row]], 1)
        out[row] = _convolve(joined, weight, bias, activation)
        if intermediate_conv_window is None:
            conv_state[slot] = joined[:, x.shape[2] :]
            continue
        for step in range(x.shape[2]):
            intermediate_conv_window[int(intermediate_state_indices[row]), step] = joined[:, step + 1 : step + 1 + conv_state.shape[2]]
    return out.squeeze(-1) if single else out


def _convolve(joined, weight, bias, activation):
    out = functional.conv1d(joined[None], weight[:, None], bias, groups=weight.shape[0])[0]
    return functional.silu(out) if activation else out


def chunk_gated_delta_rule_cpu(*, q, k, v, g, beta, initial_state, cu_seqlens, initial_state_indices, use_qk_l2norm_in_kernel=True, **rest):
    """Prefill: [1, tokens, heads, width] of packed requests; the states are updated in place."""
    out = torch.empty_like(v)
    for row, slot in enumerate(initial_state_indices.tolist()):
        state = initial_state[slot].float()
        for token in range(int(cu_seqlens[row]), int(cu_seqlens[row + 1])):
            out[0, token], state = _step(state, q[0, token], k[0, token], v[0, token], g[0, token], beta[0, token])
        initial_state[slot] = state.to(initial_state.dtype)
    return out, None, None


def fused_sigmoid_gating_delta_rule_update_cpu(
    *, A_log, dt_bias, q, k, v, a, b, initial_state_source, initial_state_indices, cu_seqlens, disable_state_update=False,  # noqa: N803
    intermediate_states_buffer=None, intermediate_state_indices=None, **rest,
):  # fmt: skip
    """Decode, or verify with each step's state kept aside."""
    out = torch.zeros_like(v)
    decay, beta = fused_gdn_gating_cpu(A_log, a, b, dt_bias)
    for row in range(cu_seqlens.shape[0] - 1):
        slot = int(initial_state_indices[row])
        if slot < 0:
            continue
        state, first = initial_state_source[slot].float(), int(cu_seqlens[row])
        for token in range(first, int(cu_seqlens[row + 1])):
            out[0, token], state = _step(state, q[0, token], k[0, token], v[0, token], decay[0, token], beta[0, token])
            if intermediate_states_buffer is not None:
                intermediate_states_buffer[int(intermediate_state_indices[row]), token - first] = state.to(intermediate_states_buffer.dtype)
        if not disable_state_update:
            initial_state_source[slot] = state.to(initial_state_source.dtype)
    return out


def _step(state, q, k, v, decay, beta):
    """Output [heads, value width] and next state [heads, value width, key width] of one token."""
    q, k = (functional.normalize(item.float(), dim=-1, eps=1e-6).repeat_interleave(v.shape[0] // item.shape[0], 0) for item in (q, k))
    state = state * decay.float().exp()[:, None, None]
    new = (v.float() - (state * k[:, None]).sum(-1)) * beta.float()[:, None]
    state = state + new[:, :, None] * k[:, None]
    return ((state * q[:, None]).sum(-1) * q.shape[-1] ** -0.5).to(v.dtype), state


def fused_gdn_gating_cpu(A_log, a, b, dt_bias):  # noqa: N803
    """Log decay and write strength, [1, tokens, heads] each."""
    return (-A_log.float().exp() * functional.softplus(a.float() + dt_bias.float()))[None], b.sigmoid()[None]


def fused_qkvzba_split_reshape_cat_contiguous_cpu(qkvz, ba, key_heads, value_heads, key_width, value_width):
    """Cut the joint projections: q, k and v together, z, b and a."""
    width = 2 * key_heads * key_width + value_heads * value_width
    return qkvz[:, :width].contiguous(), qkvz[:, width:].reshape(-1, value_heads, value_width), ba[:, :value_heads].contiguous(), ba[:, value_heads:].contiguous()


def fused_rmsnorm_gated_cpu(x, weight, gate, eps):
    """Norm, then gate."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float() * functional.silu(gate.float())).to(x.dtype)


def fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, eps, width):
    """Norms of query and key heads; weights are stored minus 1."""
    return _gemma(q.reshape(-1, width), q_weight, eps), _gemma(k.reshape(-1, width), k_weight, eps)


def fused_qk_gemma_rmsnorm_with_gate_cpu(q_gate, k, q_weight, k_weight, eps, width, heads):
    """The same for a query that comes with its gate, head by head."""
    q, gate = q_gate.reshape(-1, heads, 2, width).unbind(2)
    return _gemma(q.reshape(-1, width), q_weight, eps), _gemma(k.reshape(-1, width), k_weight, eps), gate.contiguous().view(-1, width)


def _gemma(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (1 + weight.float())).to(x.dtype)


def fused_sigmoid_mul_cpu(x, gate):
    """In place."""
    x.mul_(gate.sigmoid())


OPERATORS = (
    fused_gdn_gating_cpu, fused_qk_gemma_rmsnorm_cpu, fused_qk_gemma_rmsnorm_with_gate_cpu, fused_qkvzba_split_reshape_cat_contiguous_cpu,
    fused_rmsnorm_gated_cpu, fused_sigmoid_gating_delta_rule_update_cpu, fused_sigmoid_mul_cpu,
)  # fmt: skip
"""Those that SGLang looks up among torch's operators."""
for _operator in OPERATORS:
    setattr(torch.ops.sgl_kernel, _operator.__name__, _operator)
