"""Link instead of copy: files of a plan that are, byte for byte, one whole file of a source folder on the same disk.

A reflink shares blocks until one side is changed; a hard link is one file under two names.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal as Kind

from speculators_convert.errors import SourceError
from speculators_convert.rewrite.plan import Copy, Literal, OutputFile, Segment, Text
from speculators_convert.sources import LocalSource, Source, safe_path

_FICLONE = 0x40049409
"""`_IOW(0x94, 9, int)` of linux/fs.h."""
How = Kind["reflink", "hard link"]
_MEANING: dict[How, str] = {
    "reflink": "their blocks are shared until one side is changed",
    "hard link": "they are the source's own files under a second name, so a change made in place on either side changes both",
}


@dataclass(frozen=True, slots=True)
class Whole:
    """A source file that an output file equals, and the bytes that both begin with by the plan."""

    path: Path
    head: bytes
    size_bytes: int
    identity: tuple[int, int]
    """Device and inode, so that another file under the same name is noticed."""


@dataclass(slots=True)
class Linked:
    """Which files were linked and how, and which could have been but for the disk."""

    made: dict[str, tuple[How, Whole]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes that need no space."""
        return sum(whole.size_bytes for _, whole in self.made.values())

    def notes(self) -> Iterator[str]:
        """What a user of the output should know."""
        for how, meaning in _MEANING.items():
            names = sorted(path for path, (made, _) in self.made.items() if made == how)
            if names:
                yield f"linked, not copied ({how}): {', '.join(names)}; {meaning}"
        for path, why in sorted(self.failed.items()):
            yield f"copied, because it could not be linked ({why}): {path}"
        if not self.made and not self.failed:
            yield "nothing was linked: no output file is a whole file of a source folder on this machine"


def link_files(folder: Path, files: Iterable[OutputFile], sources: Mapping[str, Source]) -> Linked:
    """Link into `folder` what can be linked; the rest is left to be copied."""
    linked = Linked()
    for file in files:
        whole = whole_file(file, sources)
        if whole is None:
            continue
        to = folder / safe_path(file.path)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            linked.made[file.path] = make_link(whole, to), whole
        except OSError as error:
            linked.failed[file.path] = error.strerror or type(error).__name__
    return linked


def whole_file(file: OutputFile, sources: Mapping[str, Source]) -> Whole | None:
    """The file that `file` is a copy of, from the first byte to the last; None when it is made of anything else or lies elsewhere."""
    segments = [segment for segment in file.segments if segment.size_bytes]
    copies = [segment for segment in segments if isinstance(segment, Copy)]
    head = _fixed(segments[: len(segments) - len(copies)])
    if not copies or head is None or not _follow(copies, len(head)):
        return None
    source, name = sources[copies[0].source], copies[0].file
    if not isinstance(source, LocalSource):
        return None
    path = source.located(name)
    if not path.is_file():
        return None
    found = path.stat()
    same = found.st_size == file.size_bytes and source.read(name, 0, len(head)) == head
    return Whole(path, head, file.size_bytes, _identity(found)) if same else None


def _fixed(segments: Sequence[Segment]) -> bytes | None:
    """Bytes that stand in the plan itself; None when there is another kind among them."""
    parts = list[bytes]()
    for segment in segments:
        if isinstance(segment, Text):
            parts.append(segment.text.encode())
        elif isinstance(segment, Literal) and segment.count == 1:
            parts.append(segment.data)
        else:
            return None
    return b"".join(parts)


def _follow(copies: Sequence[Copy], position: int) -> bool:
    """Whether the ranges lie end to end in one file, from `position` on."""
    for item in copies:
        if item.start != position or (item.source, item.file) != (copies[0].source, copies[0].file):
            return False
        position = item.stop
    return True


def make_link(whole: Whole, to: Path) -> How:
    """A reflink where the disk has them, else a hard link; `OSError` when neither is possible, and then nothing stands under `to`."""
    try:
        _reflink(whole, to)
    except OSError:
        os.link(whole.path, to, follow_symlinks=False)
        _refuse_other(whole, to.lstat())
        return "hard link"
    return "reflink"


def _reflink(whole: Whole, to: Path) -> None:
    if sys.platform != "linux":
        raise OSError("no reflinks here")
    with whole.path.open("rb") as source:
        _refuse_other(whole, os.fstat(source.fileno()))
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            fcntl.ioctl(descriptor, _FICLONE, source.fileno())
        except OSError:
            to.unlink()
            raise
        finally:
            os.close(descriptor)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _refuse_other(whole: Whole, found: os.stat_result) -> None:
    """`SourceError` when a file is not the one that was looked at."""
    if _identity(found) != whole.identity:
        raise SourceError("another file took the place of the source's while it was linked", where=str(whole.path), hint="stop what writes to it and run the command again")
