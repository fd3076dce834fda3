"""Attention back ends for target and draft by compute capability, from `backends.json`; each entry there names its source in SGLang 0.5.23.

A server picks the back end of a draft after its target's, whatever the draft looks like. Here a draft gets one that serves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from speculators_convert.errors import UsageError
from speculators_convert.model import Model

Role = Literal["target", "draft"]
CPU = "cpu"
WITHOUT_DEMANDS = "triton"
"""For a device that the table does not know."""
OPTIONS: dict[Role, str] = {"target": "--attention-backend", "draft": "--draft-attention-backend"}


class Place(Model):
    """Lines of a file below `sglang/srt`, and a piece of text that stands in them."""

    file: str
    first: int
    last: int
    says: str


class Entry(Model):
    """One back end that serves a role on a kind of device."""

    name: str
    why: str
    source: Place


class Capability(Model):
    """What serves on a kind of device, the choice first, and what of it was run."""

    devices: str
    run: str
    target: tuple[Entry, ...]
    draft: tuple[Entry, ...]


class Trap(Model):
    """Back ends that serve a role badly or not at all in a case; no `capabilities` means all.

    `head_dims`: the widths of a head that they do serve, all when there are none. `outcome`: `refused` where a server with it ends or answers nothing;
    `served` where it answers, but with fewer accepted tokens, or not with what it was told to use.
    """

    names: tuple[str, ...]
    roles: tuple[Role, ...]
    when: Literal["bonus anchor without plugin", "sliding layers with plugin", "ragged graph", "head without kernels", "always"]
    capabilities: tuple[str, ...]
    head_dims: tuple[int, ...] = ()
    outcome: Literal["refused", "served"]
    why: str
    source: Place


class Table(Model):
    """`backends.json`."""

    schema_version: str
    engine: str
    version: str
    capabilities: dict[str, Capability]
    traps: tuple[Trap, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What the choice depends on beside the device.

    `plugin_live`: the plugin is in force for this draft, a Speculators file. `head_dim`: of the role's model, None when unknown.
    """

    bonus_anchor: bool = False
    plugin_live: bool = False
    ragged_graph: bool = False
    sliding: bool = False
    head_dim: int | None = None


@dataclass(frozen=True, slots=True)
class Backends:
    """A back end for each model, and why."""

    target: str
    draft: str
    why: str


def choose(
    capability: str | None,
    *,
    bonus_anchor: bool,
    plugin_live: bool,
    ragged_graph: bool = False,
    sliding: bool = False,
    head_dim: int | None = None,
    target_head_dim: int | None = None,
) -> Backends:
    """Back ends for a compute capability such as 9.0, 90 or sm_90; None is a CPU. A device that the table does not know gets Triton, and `why` says so.

    `head_dim` is the draft's, `target_head_dim` the target's; what is None rules nothing out.
    """
    key, of_draft = key_of(capability), Case(bonus_anchor, plugin_live, ragged_graph, sliding, head_dim)
    of_target = replace(of_draft, head_dim=target_head_dim)
    found = table().capabilities.get(key)
    if found is None:
        why = f"no entry for compute capability {capability}: Triton makes no demands on the device; not run by this project"
        return Backends(WITHOUT_DEMANDS, WITHOUT_DEMANDS, why)
    (target, about_target), (draft, about_draft) = _first(key, "target", found.target, of_target), _first(key, "draft", found.draft, of_draft)
    return Backends(target, draft, f"{key} ({found.devices}): target {target}, {about_target}; draft {draft}, {about_draft}. {found.run}")


def accepted(capability: str | None, role: Role) -> tuple[str, ...]:
    """The back ends that the table has for a role, the choice first."""
    found = table().capabilities.get(key_of(capability))
    return (WITHOUT_DEMANDS,) if found is None else tuple(entry.name for entry in (found.target if role == "target" else found.draft))


def problem(capability: str | None, role: Role, name: str, case: Case) -> str | None:
    """Why a back end that the user names does not serve the role, with the source; None when nothing is known against it."""
    return next(map(_said, _traps(key_of(capability), role, name, case)), None)


def admit(capability: str | None, role: Role, name: str, case: Case) -> str | None:
    """What a result made with this back end must say about it, None when nothing; `UsageError` where no server could serve the role with it."""
    key = key_of(capability)
    against = _traps(key, role, name, case)
    refused = next((trap for trap in against if trap.outcome == "refused"), None)
    if refused is None:
        return f"{name}: {'; '.join(map(_said, against))}" if against else None
    heads = f" with heads of {case.head_dim}" if refused.head_dims else ""
    serving = [other for other in accepted(capability, role) if not _traps(key, role, other, case)]
    raise UsageError(
        f"this attention back end cannot serve the {role}: {_said(refused)}",
        where=OPTIONS[role],
        measured=f"{name} on {key}{heads}",
        expected=" or ".join(serving),
        hint="name one of those; `smoke` without the option takes the first that serves",
    )


def key_of(capability: str | None) -> str:
    """Name in the table. SGLang compares major numbers only (`utils/common.py`): sm_103 is sm_100, sm_121 is sm_120."""
    if capability is None:
        return CPU
    digits = capability.lower().removeprefix("sm_").rstrip("af")
    major = digits.partition(".")[0] if "." in digits else digits[:-1]
    return f"sm_{major}0" if major.isdecimal() else capability


@cache
def table() -> Table:
    """The table of the package."""
    return Table.model_validate_json(files(__package__).joinpath("backends.json").read_text(encoding="utf-8"))


def _first(key: str, role: Role, entries: tuple[Entry, ...], case: Case) -> tuple[str, str]:
    """The first entry that no trap is set for, and why; with a trap on each, the first and its trap."""
    against = [(entry, problem(key, role, entry.name, case)) for entry in entries]
    passed = [f"not {entry.name}: {reason}" for entry, reason in against if reason is not None]
    for entry, reason in against:
        if reason is None:
            before = passed[: entries.index(entry)]
            return entry.name, "; ".join([entry.why, *before])
    return entries[0].name, "; ".join(passed)


def _traps(key: str, role: Role, name: str, case: Case) -> tuple[Trap, ...]:
    """All traps that a back end falls into, in the order of the table."""
    here = (trap for trap in table().traps if name in trap.names and role in trap.roles and (not trap.capabilities or key in trap.capabilities))
    return tuple(trap for trap in here if _in_force(trap, case))


def _said(trap: Trap) -> str:
    return f"{trap.why} (SGLang {table().version}, {trap.source.file}:{trap.source.first})"


def _in_force(trap: Trap, case: Case) -> bool:
    return {
        "bonus anchor without plugin": case.bonus_anchor and not case.plugin_live,
        "sliding layers with plugin": case.sliding and case.plugin_live,
        "ragged graph": case.ragged_graph,
        "head without kernels": case.head_dim is not None and case.head_dim not in trap.head_dims,
        "always": True,
    }[trap.when]
