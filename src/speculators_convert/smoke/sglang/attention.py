"""What the table of attention back ends says of those that servers of a draft and its target are started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from speculators_convert.checkpoint import collect
from speculators_convert.serving import devices
from speculators_convert.serving.backends import Case, Role, admit
from speculators_convert.sources import LocalSource
from speculators_convert.spec import Anchor, DraftSpec
from speculators_convert.target.pairing import head_dim

RAGGED = "SGLANG_RAGGED_VERIFY_MODE"


def capability(device: str) -> str | None:
    """Of the first GPU: None on a CPU, `unknown` where no GPU is listed."""
    if device == "cpu":
        return None
    return next((gpu.capability for gpu in devices.gpus()), "unknown")


def target_heads(target: Path) -> int | None:
    """Width of a head of the model in this folder; None when it does not say."""
    return head_dim(dict(collect(LocalSource(target), payloads=()).config))


def notes(chosen: Mapping[Role, str | None], on: str | None, spec: DraftSpec, heads: int | None, *, plugin_live: bool, graph: bool) -> dict[Role, str]:
    """What a result must say of the chosen back ends on the capability `on`; `UsageError` where one of them cannot serve. `heads` are the target's."""
    ragged = graph and os.environ.get(RAGGED, "").lower() == "compact"
    widths: dict[Role, int | None] = {"target": heads, "draft": spec.head_dim}
    found = dict[Role, str]()
    for role, name in chosen.items():
        case = Case(spec.anchor is Anchor.BONUS, plugin_live, ragged, spec.slides, widths[role])
        note = None if name is None else admit(on, role, name, case)
        if note is not None:
            found[role] = note
    return found
