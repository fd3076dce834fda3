"""Sources of checkpoint bytes. `open_source` turns a reference into one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.sources.base import FileInfo, Source, SourceId, safe_path
from speculators_convert.sources.hub import download, open_hub, parse_reference
from speculators_convert.sources.local import LocalSource, loadable
from speculators_convert.sources.memory import MemorySource
from speculators_convert.sources.streamed import StreamedSource

__all__ = ["FileInfo", "LocalSource", "MemorySource", "Source", "SourceId", "StreamedSource", "loadable", "local_folder", "open_source", "safe_path", "streamed", "verify"]


def open_source(reference: str) -> Source:
    """The source that `reference` (a folder, or `org/name[@revision]` on the Hub) names; `SourceError` when there is none. A folder goes first; `hf:` skips it."""
    hub = parse_reference(reference)
    if hub and reference.startswith("hf:"):
        return open_hub(hub)
    path = Path(reference).expanduser()
    if path.is_dir():
        return LocalSource(path)
    if path.exists():
        raise UsageError("a checkpoint is a folder, not a file", where=reference, hint=f"pass its folder: {path.parent}")
    if hub:
        return open_hub(hub)
    raise SourceError("no such folder", where=reference, hint="pass the folder that holds config.json and the safetensors files, or org/name[@revision] on the Hub")


def local_folder(reference: str) -> Path:
    """A folder on this machine with the files of `reference`: itself, or the Hub's files in its cache; `SourceError` when there are none."""
    path = Path(reference).expanduser()
    hub = parse_reference(reference)
    if hub and not path.is_dir():
        return download(hub)
    source = open_source(reference)
    return loadable(source.root if isinstance(source, LocalSource) else path)


def streamed(source: Source) -> AbstractContextManager[Source]:
    """`source` for one long pass: with read-ahead and checked digests when it came from the Hub, as it is when it is a folder."""
    return StreamedSource(source) if source.id.kind == "hub" else nullcontext(source)


def verify(source: Source) -> None:
    """Compare what was read in a long pass with the published digests, where the source has some; `SourceError` for a difference."""
    if isinstance(source, StreamedSource):
        source.verify()
