"""Whether a source is the one that a plan was made from, before and after it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.sources import FileInfo, Source


def listing(source: Source) -> dict[str, tuple[FileInfo, str]]:
    """Each file, and each file behind a view, with a mark that changes when the file does."""
    behind = getattr(source, "inner", None)
    found_files = {f"{path} (behind)": found for path, found in listing(behind).items()} if behind is not None else {}
    root = _root(source)
    found_files.update({info.path: (info, _mark(root / info.path) if root else "") for info in source.files()})
    return found_files


def _root(source: Source) -> Path | None:
    """The folder of a source on this machine."""
    root = getattr(source, "root", None)
    return root if isinstance(root, Path) else None


def _mark(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return "none"
    return f"{found.st_ino} {found.st_mtime_ns}"


def refuse_inside(out: Path, source: Source) -> None:
    """`UsageError` when the output would lie in the folder that is read."""
    root = _root(source)
    if root and out.parent.resolve().is_relative_to(root):
        raise UsageError("the output would lie inside the source", where=str(out), measured=str(root), expected="a folder outside the source", hint="pass another --out")


def refuse_changed(plan: RewritePlan, found_files: Mapping[str, Mapping[str, tuple[FileInfo, str]]]) -> None:
    """The files must be those that the plan was made from."""
    for item in plan.inputs:
        found = found_files.get(item.source, {}).get(item.path)
        if found is None or found[0].size_bytes != item.size_bytes:
            raise SourceError(
                "the source is not what the plan was made from",
                where=item.path,
                measured="missing" if found is None else f"{found[0].size_bytes} bytes",
                expected=f"{item.size_bytes} bytes",
                hint="run the command again",
            )


def refuse_stale(before: object, after: object) -> None:
    """`SourceError` when two listings of the same source differ."""
    if before != after:
        raise SourceError(
            "the source was changed while it was read",
            measured="another listing",
            expected="the same sizes and times as before",
            hint="stop what writes to it and run the command again",
        )
