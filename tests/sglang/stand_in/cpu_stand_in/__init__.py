"""Hooks that let DSPARK run on device "cpu". They change where SGLang refuses or needs CUDA, never what a draft computes."""

import copy


class _Device(str):
    """"cpu", except to the one question whether DSPARK may start on it."""

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
    import sglang.srt.arg_groups.speculative_hook as module

    kept = module.resolving_view
    module.resolving_view = lambda *args, **kwargs: _View(kept(*args, **kwargs))
    try:
        return original(server_args)
    finally:
        module.resolving_view = kept


def _verify_as_extend(original, backend, q, k, v, layer, batch, save_kv_cache=True, **rest):
    """torch_native knows extend batches only: say a verify batch in its terms."""
    if batch.forward_mode.is_target_verify() and batch.extend_prefix_lens is None:
        rows = q.shape[0] // batch.batch_size
        batch = copy.copy(batch)
        batch.extend_prefix_lens = batch.seq_lens
        batch.extend_seq_lens = batch.seq_lens.new_full(batch.seq_lens.shape, rows)
        batch.seq_lens = batch.seq_lens + rows
    return original(backend, q, k, v, layer, batch, save_kv_cache, **rest)


def _without_nccl(original, *args, **kwargs):
    return original(*args, **{**kwargs, "use_pynccl": False})


def register():
    import torch
    from sglang.srt.arg_groups import choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    around = {
        "sglang.srt.arg_groups.speculative_hook._handle_dspark": _allow_cpu,
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_extend": _verify_as_extend,
        "sglang.srt.distributed.parallel_state.init_model_parallel_group": _without_nccl,
    }
    for target, hook in around.items():
        HookRegistry.register(target, hook, HookType.AROUND)
    choices.add_draft_attention_backend_choices(["torch_native"])
    record = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda tensor, stream: record(tensor, stream) if tensor.is_cuda else None
