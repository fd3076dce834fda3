"""Sources of checkpoint bytes. `open_source` turns a reference into one."""

from __future__ import annotations

import re
from pathlib import Path

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.sources.base import FileInfo, Source, SourceId, safe_path
from speculators_convert.sources.local import LocalSource
from speculators_convert.sources.memory import MemorySource

__all__ = ["FileInfo", "LocalSource", "MemorySource", "Source", "SourceId", "open_source", "safe_path"]

_HUB_REFERENCE = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$")


def open_source(reference: str) -> Source:
    """The source that `reference` (a folder) names; `SourceError` when there is none."""
    path = Path(reference).expanduser()
    if path.is_dir():
        return LocalSource(path)
    if path.exists():
        raise UsageError("a checkpoint is a folder, not a file", where=reference, hint=f"pass its folder: {path.parent}")
    if _HUB_REFERENCE.match(reference):
        raise SourceError(
            "no such folder, and this version reads local folders only",
            where=reference,
            hint=f"download it first: hf download {reference.partition('@')[0]} --local-dir DIR",
        )
    raise SourceError("no such folder", where=reference, hint="pass the folder that holds config.json and the safetensors files")
