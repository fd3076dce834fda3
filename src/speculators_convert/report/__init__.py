"""Reporters: a gate's answer to text, one file each. A file that defines `REPORTER` is a `--format`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from speculators_convert.discover import objects

if TYPE_CHECKING:
    from speculators_convert.report.base import Reporter


def reporters() -> Mapping[str, Reporter]:
    """All reporters by name."""
    return {item.name: item for item in objects(sys.modules[__name__], "REPORTER")}
