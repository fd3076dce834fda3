"""Hooks that let DSPARK run on device "cpu". They change where SGLang refuses or needs CUDA, never what a draft computes."""

import copy

import torch


class _Device(str):
    """ "cpu", except to the one question whether DSPARK may start on it."""

    __slots__ = ()

    def startswith(self, prefix, *bounds):
        return str.startswith(self, prefix, *bounds) or (isinstance(prefix, tuple) and "cuda" in prefix)


class _View:
    """SGLang's view of the arguments with that device."""

    def __init__(self, view):
        object.__setattr__(self, "_view", view)

    def __getattr__(self, name):
        value = getattr(self._view, name)
        return _Device(value) if name == "device" else value


def _allow_cpu(original, server_args):
    import sglang.srt.arg_groups.speculative_hook as module  # noqa: PLC0415

    kept = module.resolving_view
    module.resolving_view = lambda *args, **kwargs: _View(kept(*args, **kwargs))
    try:
        return original(server_args)
    finally:
        module.resolving_view = kept


def _verify_as_extend(original, backend, q, k, v, layer, batch, save_kv_cache=True, **rest):
    """torch_native knows extend batches only: say a verify batch in its terms, packed or not."""
    from sglang.srt.layers.radix_attention import AttentionType  # noqa: PLC0415

    if batch.forward_mode.is_target_verify() and batch.extend_prefix_lens is None:
        layout = batch.spec_info.ragged_verify_layout if hasattr(batch.spec_info, "ragged_verify_layout") else None
        rows = batch.seq_lens.new_full(batch.seq_lens.shape, q.shape[0] // batch.batch_size) if layout is None else layout.verify_lens.to(batch.seq_lens.dtype)
        batch = copy.copy(batch)
        batch.extend_prefix_lens = batch.seq_lens
        batch.extend_seq_lens = rows
        batch.seq_lens = batch.seq_lens + rows
    backend.stand_in_layer = layer if layer.attn_type == AttentionType.ENCODER_ONLY or layer.sliding_window_size > -1 else None
    return original(backend, q, k, v, layer, batch, save_kv_cache, **rest)


def _remember_window(result, backend, model_runner):
    backend.stand_in_window = getattr(model_runner, "sliding_window_size", None)


def _sliding_as_triton(original, backend, *args, sliding_window_size=None, **rest):
    """A sliding layer of a draft as SGLang's Triton back end has it: context cut to the model's window, then the layer's own
    window counted from each slot. torch_native knows the second half only, and for causal layers only."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend  # noqa: PLC0415

    layer, model_window = getattr(backend, "stand_in_layer", None), getattr(backend, "stand_in_window", None)
    if layer is None or layer.sliding_window_size < 0 or model_window is None:
        return original(backend, *args, sliding_window_size=sliding_window_size, **rest)
    rows, causal = int(args[8][0]), rest["causal"]

    def mask(*, q_len, kv_len, sliding_window_size, device, query_offset=0):
        position = torch.arange(kv_len, device=device)
        distance = torch.arange(query_offset, query_offset + q_len, device=device)[:, None] - position
        seen = (position >= kv_len - rows - model_window) & (distance <= sliding_window_size)
        return seen & (distance >= (0 if causal else -sliding_window_size))

    kept = TorchNativeAttnBackend._make_sliding_window_mask
    TorchNativeAttnBackend._make_sliding_window_mask = staticmethod(mask)
    try:
        return original(backend, *args, sliding_window_size=layer.sliding_window_size, **rest)
    finally:
        TorchNativeAttnBackend._make_sliding_window_mask = staticmethod(kept)


def _commit_states(original, caches, slots, steps, track_slots=None, track_steps=None, src_indices_raw=None):
    """SGLang's kernel for this is CUDA's; its own rule for other devices is kept beside it, and called here."""
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import HybridLinearAttnBackend  # noqa: PLC0415

    pairs = [(caches.temporal, caches.intermediate_ssm), *zip(caches.conv, caches.intermediate_conv_window, strict=True)]
    for state, kept in pairs:
        HybridLinearAttnBackend._scatter_speculative_state_with_mask(state, kept, slots, steps, src_indices_raw)
        if track_slots is not None:
            HybridLinearAttnBackend._scatter_speculative_state_with_mask(state, kept, track_slots, track_steps, src_indices_raw)


def _norm_then_gate(original, norm, x, z=None):
    """SGLang has a CPU kernel for this, but takes it on processors with AMX only."""
    from sgl_kernel.mamba import fused_rmsnorm_gated_cpu  # noqa: PLC0415

    assert z is not None
    assert norm.norm_before_gate
    assert norm.group_size is None
    return fused_rmsnorm_gated_cpu(x, norm.weight, z, norm.eps)


def _declare_packed():
    """With `_verify_as_extend`, packed requests of different lengths are served right."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend  # noqa: PLC0415

    TorchNativeAttnBackend.supports_ragged_verify_graph = True


def _without_nccl(original, *args, **kwargs):
    return original(*args, **{**kwargs, "use_pynccl": False})


def register():
    from sglang.srt.arg_groups import choices  # noqa: PLC0415
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    around = {
        "sglang.srt.arg_groups.speculative_hook._handle_dspark": _allow_cpu,
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_extend": _verify_as_extend,
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend._run_sdpa_forward_extend": _sliding_as_triton,
        "sglang.srt.distributed.parallel_state.init_model_parallel_group": _without_nccl,
        "sglang.kernels.ops.attention.fla.layernorm_gated.RMSNorm.forward": _norm_then_gate,
        "sglang.kernels.ops.mamba.mamba_state_scatter_triton.scatter_mamba_states_after_mtp_verify": _commit_states,
    }
    for target, hook in around.items():
        HookRegistry.register(target, hook, HookType.AROUND)
    HookRegistry.register("sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.__init__", _remember_window, HookType.AFTER)
    choices.add_draft_attention_backend_choices(["torch_native"])
    import sgl_kernel.mamba  # noqa: F401, PLC0415  (adds its operators)

    _declare_packed()
    record = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda tensor, stream: record(tensor, stream) if tensor.is_cuda else None
