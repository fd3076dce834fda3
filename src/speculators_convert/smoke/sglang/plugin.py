"""Is this package's plugin in force for a draft, as SGLang would see it from here?"""

from __future__ import annotations

import os
from importlib import metadata

from speculators_convert.spec import DraftSpec

GROUP, NAME, VARIABLE = "sglang.srt.plugins", "speculators_dspark", "SGLANG_PLUGINS"
FORMAT = "speculators"


def in_force(spec: DraftSpec) -> bool:
    """The entry point is installed, `SGLANG_PLUGINS` does not leave it out, and the draft is a Speculators file."""
    selected = os.environ.get(VARIABLE)
    named = {item.strip() for item in selected.split(",")} if selected else None
    installed = any(entry.name == NAME for entry in metadata.entry_points(group=GROUP))
    return spec.format == FORMAT and installed and (named is None or NAME in named)
