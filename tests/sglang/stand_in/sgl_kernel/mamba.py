"""Names that SGLang imports for state-space targets; none of the test targets is one."""


def causal_conv1d_fn_cpu(*args, **kwargs):
    raise NotImplementedError("the stand-in has no state-space kernels")


causal_conv1d_update_cpu = chunk_gated_delta_rule_cpu = causal_conv1d_fn_cpu
