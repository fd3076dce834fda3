"""The functions of SGLang that the plugin changes: where, how, and the proof that each change is in force."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from speculators_convert.sglang_plugin import conditions, parser, release, state

_SRT = "sglang.srt"
_DSPARK = f"{_SRT}.speculative.dspark_components"


@dataclass(frozen=True, slots=True)
class Hook:
    """One changed function. `function` is "module:name" in this package, imported when SGLang is; `parameters` are the target's own."""

    target: str
    kind: str
    function: str
    parameters: tuple[str, ...]
    purpose: str
    optional: bool = False
    """Not needed where the target's module cannot be imported: nothing can call it there."""
    when: Callable[[], bool] = conditions.always
    """Whether this launch needs it. A hook that is not needed is installed all the same, and may fail to be."""
    upstream: str = ""
    """What SGLang would have to merge to make it unnecessary."""
    until: str = ""
    """First SGLang release that has that change: from there on the hook stays out. Empty while no release has it."""


HOOKS = (
    Hook(
        f"{_SRT}.arg_groups.speculative_hook._handle_dspark", "AROUND", "launch:checked_launch",
        ("server_args",),
        "check draft and target before anything is loaded",
    ),
    Hook(
        f"{_SRT}.model_loader.utils.get_model_architecture", "BEFORE", "architecture:make_known",
        ("model_config",),
        "make the draft's class known to the model registry",
    ),
    Hook(
        f"{_DSPARK}.dspark_draft.draft_markov_block", "AROUND", "block:draft_block",
        ("markov_head", "base_logits", "anchor_tokens", "draft_hidden", "step_temperatures", "noise", "tp_sync", "logits_out", "greedy_draft"),
        "draft over the reduced vocabulary and map each id before it is used",
    ),
    Hook(
        f"{_DSPARK}.dspark_draft.select_draft_hidden_without_anchor", "AFTER", "block:keep_anchor_state",
        ("hidden_states", "bs", "gamma"),
        "keep the anchor row's state, which a recurrent Markov head reads first",
    ),
    Hook(
        f"{_DSPARK}.dspark_planner.DSparkVerifyPlanner.__init__", "BEFORE", "sharing:attach",
        ("self", "draft_model", "gamma", "model_runner", "device", "tp_rank", "verify_num_draft_tokens", "tp_sync"),
        "share the target's embedding with a draft that has its own head, whatever form the target's head has",
    ),
    Hook(
        f"{_SRT}.layers.attention.flashattention_backend.FlashAttentionBackend.__init__", "AFTER", "width:set_query_rows",
        ("self", "model_runner", "skip_prefill", "speculative_step_id", "topk", "speculative_num_steps", "fa_impl_ver"),
        "gamma + 1 query rows for a bonus-anchor draft",
        optional=True,
    ),
    Hook(
        f"{_SRT}.model_executor.forward_batch_info.ForwardBatch.compute_spec_mrope_positions", "AROUND", "ragged_rope:spec_positions",
        ("self", "model_runner", "batch", "seq_positions"),
        "mRoPE positions of packed requests that verify different numbers of tokens",
        when=conditions.compact,
        upstream="compute_spec_mrope_positions takes each token's request from spec_info.ragged_verify_layout",
    ),
    Hook(
        f"{_SRT}.layers.attention.linear.gdn_backend.GDNAttnBackend.forward_extend", "AROUND", "ragged_linear:forward_extend",
        ("self", "layer", "forward_batch", "mixed_qkv", "a", "b", "kwargs"),
        "GDN layers over packed requests that verify different numbers of tokens",
        optional=True,
        when=conditions.compact,
        upstream="GDNAttnBackend.forward_extend lays packed verify tokens out in rows, as KDAAttnBackend does",
    ),
    Hook(
        f"{_SRT}.layers.attention.linear.gdn_backend.GDNAttnBackend.__init__", "AFTER", "ragged_support:declare",
        ("self", "model_runner"),
        "say that GDN layers can verify packed requests in graphs too",
        optional=True,
        when=conditions.compact,
        upstream="GDNAttnBackend.supports_ragged_verify_graph = True",
    ),
    Hook(
        f"{_SRT}.speculative.dspark_components.dspark_worker_v2.DSparkWorkerV2.init_attention_backends", "AFTER", "ragged_support:require",
        ("self",),
        "refuse compact verification where an attention back end does not know packed requests",
        when=conditions.compact,
        upstream="DSparkWorkerV2 refuses compact mode on back ends that read no ragged_verify_layout",
    ),
    Hook(
        f"{_SRT}.models.qwen3_vl.Qwen3VLForConditionalGeneration.set_dflash_layers_to_capture", "AROUND", "captures:set_layers",
        ("self", "layer_ids"),
        "capture layers of a dense Qwen3-VL target, which otherwise ends with an AttributeError",
        optional=True,
        when=conditions.never,
        upstream="Qwen3LLMModel.set_dflash_layers_to_capture, as Qwen3MoeModel has it",
    ),
    Hook(
        f"{_SRT}.managers.scheduler.Scheduler.flush_cache", "AROUND", "flush:keep_allocations",
        ("self", "empty_cache"),
        "keep device memory mapped that captured draft graphs may read",
        upstream="Scheduler.flush_cache does not call empty_cache while a draft graph is captured",
    ),
    Hook(
        f"{_DSPARK}.dspark_verify.build_accept_outs", "AROUND", "simulate:accept_outs",
        ("correct_len", "bonus", "cap_trim_lens", "prefix_lens", "draft_tokens", "gamma", "verify_num_draft_tokens", "tp_sync", "sync_site",
         "simulated_correct_len", "target_logits", "simulate_bonus_sampling_info", "out", "block_accept_lens_out"),
        "simulated acceptance takes the bonus token at the drawn boundary",
        when=conditions.simulated,
        upstream="build_accept_outs recomputes the bonus whenever simulated_correct_len is given",
    ),
    Hook(
        f"{_DSPARK}.dspark_verify.DsparkVerifyEpilogue.__init__", "AROUND", "simulate:fold_bonus",
        ("self", "max_bs", "verify_num_draft_tokens", "device", "tp_sync", "commit_ctx", "fused_argmax", "simulated_correct_len", "simulate_fold",
         "fused_accept_tail", "accept_tail_min_bs", "accept_tail_max_bs", "deferred_commit", "post_fold"),
        "the same inside the verify graph",
        when=conditions.simulated,
        upstream="DsparkVerifyEpilogue folds the simulated bonus without SGLANG_DSPARK_SIMULATE_FOLD",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether one hook is in force in this process, and who still holds the function as it was."""

    hook: Hook
    live: bool
    stale: tuple[str, ...]
    problem: str
    needed: bool = True


def install() -> str | None:
    """Register each hook with SGLang; returns why not, when a target is not what the plugin was written for."""
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

        for hook in filter(_possible, HOOKS):
            mismatch = _mismatch(hook)
            if mismatch and hook.when():
                return mismatch
            if not mismatch:
                HookRegistry.register(hook.target, _function(hook), HookType[hook.kind])
    except (ImportError, AttributeError) as error:
        return f"a hook could not be registered: {error}"
    return None


def _mismatch(hook: Hook) -> str | None:
    """`signature_problem`, for a target that may be missing too."""
    try:
        return signature_problem(hook)
    except (ImportError, AttributeError) as error:
        return f"a hook could not be registered: {error}"


def signature_problem(hook: Hook) -> str | None:
    """Why the target is not the function that the hook expects."""
    original = _chain(pkgutil.resolve_name(hook.target))[-1]
    found = tuple(inspect.signature(original).parameters)
    if found == hook.parameters:
        return None
    return f"{hook.target} takes ({', '.join(found)}), expected ({', '.join(hook.parameters)})"


def liveness(hook: Hook) -> Liveness:
    """Look for the hook's function behind its target, and for modules that still hold the original."""
    if not _possible(hook):
        problem = f"SGLang has its change since {hook.until}" if release.has(hook.until) else "its module cannot be imported here"
        return Liveness(hook, live=False, stale=(), problem=problem, needed=False)
    needed = hook.when()
    try:
        chain = _chain(pkgutil.resolve_name(hook.target))
        wanted = _function(hook)
    except (ImportError, AttributeError) as error:
        return Liveness(hook, live=False, stale=(), problem=str(error), needed=needed)
    live = any(held is wanted for held in _held(chain))
    stale = tuple(sorted(_holders(chain[-1]))) if live else ()
    return Liveness(hook, live, stale, "" if live else "SGLang did not apply the hook", needed)


def require_live() -> None:
    """Raise unless parser and hooks are all in force in this process."""
    state.require_sound()
    broken = [f"{item.hook.target}: {item.problem or 'still called by ' + ', '.join(item.stale)}" for item in map(liveness, HOOKS) if item.needed and (not item.live or item.stale)]
    if not parser.is_live():
        broken.insert(0, "another plugin replaced the config parser")
    if broken:
        raise state.PluginError("a hook of the SGLang plugin is not in force", measured="; ".join(broken), expected="all live", hint="see SGLang's log for the reason")


def _possible(hook: Hook) -> bool:
    """False for a hook that this SGLang no longer needs, and for an optional one whose target's module cannot be imported."""
    if release.has(hook.until):
        return False
    if not hook.optional:
        return True
    try:
        pkgutil.resolve_name(hook.target.rpartition(".")[0])
    except (ImportError, AttributeError):
        return False
    return True


def _function(hook: Hook) -> Callable[..., Any]:
    module, _, name = hook.function.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return function


def _chain(function: Any) -> list[Any]:
    """The function, what it wraps, and so on to the original."""
    chain = [function]
    while (inner := getattr(chain[-1], "__wrapped__", None)) is not None:
        chain.append(inner)
    return chain


def _held(chain: list[Any]) -> Iterator[Any]:
    """What SGLang's wrappers hold in their closures: hooks and inner functions."""
    for function in chain:
        for cell in getattr(function, "__closure__", None) or ():
            yield cell.cell_contents


def _holders(original: Any) -> Iterator[str]:
    """Modules that still hold `original` under some name: they would call it without the hook."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and module.__name__.startswith("sglang"):
            yield from (f"{module.__name__}.{name}" for name, value in list(vars(module).items()) if value is original)
