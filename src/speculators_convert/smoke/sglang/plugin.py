"""Is this package's plugin in force for a draft, as SGLang would see it from here?"""

from __future__ import annotations

import os
from importlib import metadata

from speculators_convert.serving.config import PLUGIN_GROUP, PLUGIN_NAME, PLUGIN_VARIABLE
from speculators_convert.spec import DraftSpec

FORMAT = "speculators"


def in_force(spec: DraftSpec) -> bool:
    """The entry point is installed, `SGLANG_PLUGINS` does not leave it out, and the draft is a Speculators file."""
    selected = os.environ.get(PLUGIN_VARIABLE)
    named = {item.strip() for item in selected.split(",")} if selected else None
    installed = any(entry.name == PLUGIN_NAME for entry in metadata.entry_points(group=PLUGIN_GROUP))
    return spec.format == FORMAT and installed and (named is None or PLUGIN_NAME in named)
