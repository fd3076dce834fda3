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

from speculators_convert.sglang_plugin import parser, state

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

        for hook in filter(_needed, HOOKS):
            mismatch = signature_problem(hook)
            if mismatch:
                return mismatch
            HookRegistry.register(hook.target, _function(hook), HookType[hook.kind])
    except (ImportError, AttributeError) as error:
        return f"a hook could not be registered: {error}"
    return None


def signature_problem(hook: Hook) -> str | None:
    """Why the target is not the function that the hook expects."""
    original = _chain(pkgutil.resolve_name(hook.target))[-1]
    found = tuple(inspect.signature(original).parameters)
    if found == hook.parameters:
        return None
    return f"{hook.target} takes ({', '.join(found)}), expected ({', '.join(hook.parameters)})"


def liveness(hook: Hook) -> Liveness:
    """Look for the hook's function behind its target, and for modules that still hold the original."""
    if not _needed(hook):
        return Liveness(hook, live=False, stale=(), problem="its module cannot be imported here", needed=False)
    try:
        chain = _chain(pkgutil.resolve_name(hook.target))
        wanted = _function(hook)
    except (ImportError, AttributeError) as error:
        return Liveness(hook, live=False, stale=(), problem=str(error))
    live = any(held is wanted for held in _held(chain))
    stale = tuple(sorted(_holders(chain[-1]))) if live else ()
    return Liveness(hook, live, stale, "" if live else "SGLang did not apply the hook")


def require_live() -> None:
    """Raise unless parser and hooks are all in force in this process."""
    state.require_sound()
    broken = [f"{item.hook.target}: {item.problem or 'still called by ' + ', '.join(item.stale)}" for item in map(liveness, HOOKS) if item.needed and (not item.live or item.stale)]
    if not parser.is_live():
        broken.insert(0, "another plugin replaced the config parser")
    if broken:
        raise state.PluginError("a hook of the SGLang plugin is not in force", measured="; ".join(broken), expected="all live", hint="see SGLang's log for the reason")


def _needed(hook: Hook) -> bool:
    """False for an optional hook whose target's module cannot be imported."""
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
