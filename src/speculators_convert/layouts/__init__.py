"""Output layouts: one file each. A layout only plans; `find` returns the one that the user named."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from speculators_convert.discover import objects
from speculators_convert.errors import UsageError
from speculators_convert.layouts.base import Layout, Options

LAYOUTS: Mapping[str, Layout] = {item.name: item for item in objects(sys.modules[__name__], "LAYOUT")}
DEFAULT_LAYOUT = "speculators"


def find(name: str) -> Layout:
    """The layout called `name`; `UsageError` lists those that there are."""
    if name not in LAYOUTS:
        raise UsageError("there is no such layout", where="--layout", measured=name, expected="one of " + ", ".join(sorted(LAYOUTS)))
    return LAYOUTS[name]


__all__ = ["DEFAULT_LAYOUT", "LAYOUTS", "Layout", "Options", "find"]
