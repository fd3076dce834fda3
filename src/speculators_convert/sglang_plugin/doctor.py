"""What the plugin finds in an SGLang environment: versions, entry points, hooks, devices. Run there, as a module; prints JSON.

It loads SGLang's plugins as a server process does, so a hook that it reports as live is live in a server too.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from importlib import metadata
from typing import Any

from pydantic import Field

from speculators_convert.model import Model
from speculators_convert.sglang_plugin import ENTRY_POINT_GROUP, ENTRY_POINT_NAME, release

_DISTRIBUTIONS = ("speculators-convert", "sglang", "sglang-kernel", "torch", "transformers", "flashinfer-python", "triton", "safetensors", "pydantic")


class PluginEntry(Model):
    """One plugin that SGLang would find."""

    name: str
    value: str
    distribution: str | None
    selected: bool = Field(description="Not left out by SGLANG_PLUGINS")


class HookState(Model):
    """One function of SGLang that the plugin changes."""

    target: str
    kind: str
    purpose: str
    needed: bool = Field(description="False for a back end that cannot be imported here, a mode that is not switched on, or a release that has the change")
    live: bool
    signature: str = Field(description="Empty when the target is as expected")
    stale: tuple[str, ...] = Field(description="Modules that still hold the function as it was")
    problem: str


class Device(Model):
    """One GPU."""

    index: int
    name: str
    capability: str
    memory_bytes: int


class Doctor(Model):
    """The state of one environment."""

    schema_version: str = "1"
    python: str
    platform: str
    versions: dict[str, str | None]
    tested_sglang: str = release.TESTED
    untested_allowed: bool
    environment: dict[str, str] = Field(description="SGLANG_* and SPEC_CONVERT_* variables")
    plugins: tuple[PluginEntry, ...]
    parser_live: bool
    hooks: tuple[HookState, ...]
    cuda: str | None
    nccl: str | None
    devices: tuple[Device, ...]
    problems: tuple[str, ...] = Field(description="Why a Speculators draft would be refused here; empty when it would be served")


def diagnose() -> Doctor:
    """Look at this process' environment. Imports SGLang; takes as long as a server's first seconds."""
    plugins = _plugins()
    problems = list(_entry_problems(plugins))
    parser_live, hooks = False, tuple[HookState, ...]()
    version_problem = release.problem(release.installed(), allowed=release.untested_allowed())
    try:
        parser_live, hooks, found = _loaded()
        problems += found
    except ImportError as error:
        problems.append(f"SGLang cannot be imported: {error}")
    if version_problem and version_problem not in problems:
        problems.append(version_problem)
    cuda, nccl, devices = _devices()
    if not devices and os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        problems.append("no CUDA device can be used, and SGLang serves DSPARK on a GPU only")
    return Doctor(
        python=platform.python_version(),
        platform=platform.platform(),
        versions={name: _version(name) for name in _DISTRIBUTIONS},
        untested_allowed=release.untested_allowed(),
        environment=_environment(),
        plugins=plugins,
        parser_live=parser_live,
        hooks=hooks,
        cuda=cuda,
        nccl=nccl,
        devices=devices,
        problems=tuple(problems),
    )


def _environment() -> dict[str, str]:
    """Variables that steer SGLang or this package; values of secrets are left out."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("SGLANG_", "SPEC_CONVERT_"))}
    return {name: "set" if any(word in name for word in ("KEY", "TOKEN", "SECRET", "PASSWORD")) else value for name, value in found.items()}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _plugins() -> tuple[PluginEntry, ...]:
    allowed = {name.strip() for name in os.environ.get("SGLANG_PLUGINS", "").split(",") if name.strip()}
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    return tuple(
        PluginEntry(name=item.name, value=item.value, distribution=item.dist.name if item.dist else None, selected=not allowed or item.name in allowed)
        for item in sorted(found, key=lambda item: item.name)
    )


def _entry_problems(plugins: tuple[PluginEntry, ...]) -> list[str]:
    ours = [item for item in plugins if item.name == ENTRY_POINT_NAME]
    if not ours:
        return [f"the entry point {ENTRY_POINT_NAME} of group {ENTRY_POINT_GROUP} is not installed"]
    return [] if ours[0].selected else [f"SGLANG_PLUGINS leaves out {ENTRY_POINT_NAME}"]


def _loaded() -> tuple[bool, tuple[HookState, ...], list[str]]:
    """Load the plugins as SGLang does, then look."""
    importlib.import_module("sglang.srt.plugins").load_plugins()
    from speculators_convert.sglang_plugin import hooks, parser, state  # noqa: PLC0415

    states = tuple(_hook_state(hooks, item) for item in map(hooks.liveness, hooks.HOOKS))
    problems = [state.problem] if state.problem else []
    problems += [
        f"{item.target}: {item.problem or item.signature or 'stale in ' + ', '.join(item.stale)}"
        for item in states
        if item.needed and (not item.live or item.signature or item.stale)
    ]
    return parser.is_live(), states, problems


def _hook_state(hooks: Any, found: Any) -> HookState:
    hook = found.hook
    try:
        signature = hooks.signature_problem(hook) or ""
    except (ImportError, AttributeError) as error:
        signature = str(error)
    return HookState(target=hook.target, kind=hook.kind, purpose=hook.purpose, needed=found.needed, live=found.live, signature=signature, stale=found.stale, problem=found.problem)


def _devices() -> tuple[str | None, str | None, tuple[Device, ...]]:
    """CUDA and NCCL versions of the torch build, and the GPUs that can be used."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return None, None, ()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda and torch.cuda.is_available() else _version("nvidia-nccl-cu13")  # type: ignore[no-untyped-call]
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(Device(index=index, name=properties.name, capability=f"{properties.major}.{properties.minor}", memory_bytes=properties.total_memory))
    return torch.version.cuda, nccl, tuple(devices)


if __name__ == "__main__":
    sys.stdout.write(diagnose().model_dump_json(indent=2) + "\n")
