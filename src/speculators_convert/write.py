"""Follow a plan: stream, hash while copying, sync, and let the finished folder appear under its name in one step.

Memory does not depend on the size of a file: one chunk is read while the one before it is hashed, once for its file and
once for its tensor, by two threads (hashlib and the file system work outside the interpreter lock).
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from speculators_convert.claim import claimed
from speculators_convert.errors import SourceError, UsageError, WriteError
from speculators_convert.model import pretty_json, sha256_hex
from speculators_convert.plan import OutputFile, RewritePlan
from speculators_convert.rank_manifest import MANIFEST_NAME, RankManifest
from speculators_convert.receipt import RECEIPT_NAME, Digest, Receipt, Rewrite, Subject, TensorDigest
from speculators_convert.segments import Chunk, stream
from speculators_convert.sources import FileInfo, Source, StreamedSource, safe_path
from speculators_convert.version import __version__

CHUNK_BYTES = 1024 * 1024
"""Small enough for the allocator to use the same memory again; larger chunks cost a page fault for each page."""
SYNC_BYTES = 32 * 1024 * 1024
"""Bytes after which the kernel is asked to begin writing, so that the last sync finds little left to do."""
_RESERVE_BYTES = 1024 * 1024
Progress = Callable[[int, int], None]


def execute(plan: RewritePlan, source: Source, out: Path, *, target: Source | None = None, chunk_bytes: int = CHUNK_BYTES, progress: Progress | None = None) -> Receipt:
    """Write `plan` to `out`, which must not exist. On any failure nothing stands under that name."""
    sources: dict[str, Source] = {"draft": source} if target is None else {"draft": source, "target": target}
    for item in sources.values():
        _refuse_inside(out, item)
    before = {origin: _listing(item) for origin, item in sources.items()}
    _refuse_changed(plan, before)
    with _explained(out), claimed(out) as folder:
        _refuse_full(folder, plan)
        subjects, tensors = list[Subject](), list[TensorDigest]()
        tell = _counter(plan.size_bytes, progress)
        with ThreadPoolExecutor(3) as pool:
            writer = _Writer(folder, sources, chunk_bytes, pool)
            for file in plan.files:
                digest, found = writer.write(file, tell)
                subjects.append(Subject(name=file.path, digest=Digest(sha256=digest)))
                tensors.extend(found)
        for item in sources.values():
            if isinstance(item, StreamedSource):
                item.verify()
        if plan.ranks is not None:
            subjects.append(_write_ranks(folder, plan.ranks, tensors))
        _refuse_stale(before, {origin: _listing(item) for origin, item in sources.items()})
        receipt = _receipt(plan, subjects, tensors)
        _write_bytes(folder / RECEIPT_NAME, pretty_json(receipt.document()).encode())
    return receipt


def _counter(total: int, progress: Progress | None) -> Callable[[int], None]:
    """Adds up written bytes and tells the caller."""
    done = 0

    def tell(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if progress:
            progress(done, total)

    return tell


class _Writer:
    """Writes files of a plan into one folder; the threads hash and sync."""

    def __init__(self, folder: Path, sources: Mapping[str, Source], chunk_bytes: int, pool: ThreadPoolExecutor) -> None:
        self._folder, self._sources, self._chunk_bytes, self._pool = folder, sources, chunk_bytes, pool

    def write(self, file: OutputFile, tell: Callable[[int], None]) -> tuple[str, list[TensorDigest]]:
        """Write one file; its digest and those of its tensors."""
        path = self._folder / safe_path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole, parts = hashlib.sha256(), [hashlib.sha256() for _ in file.tensors]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        pending: list[Future[None]] = []
        syncs = _Syncs(descriptor, self._pool)
        try:
            for chunk, index in _chunks(file, self._sources, self._chunk_bytes):
                _write_all(descriptor, chunk)
                _wait(pending)
                pending = [self._pool.submit(digest.update, chunk) for digest in ((whole,) if index is None else (whole, parts[index]))]
                syncs.wrote(len(chunk))
                tell(len(chunk))
            _wait(pending)
            os.fsync(descriptor)
        finally:
            _settle(pending)
            syncs.settle()
            os.close(descriptor)
        return whole.hexdigest(), [TensorDigest(file=file.path, sha256=part.hexdigest(), **tensor.model_dump()) for tensor, part in zip(file.tensors, parts, strict=True)]


class _Syncs:
    """Asks the kernel to begin writing what is complete, while the rest is still being copied."""

    def __init__(self, descriptor: int, pool: ThreadPoolExecutor) -> None:
        self._descriptor, self._pool = descriptor, pool
        self._running: Future[None] | None = None
        self._asked = self._written = 0

    def wrote(self, size_bytes: int) -> None:
        self._written += size_bytes
        if self._written - self._asked >= SYNC_BYTES and (self._running is None or self._running.done()):
            start, self._asked = self._asked, self._written
            self._running = self._pool.submit(os.posix_fadvise, self._descriptor, start, self._written - start, os.POSIX_FADV_DONTNEED)

    def settle(self) -> None:
        """No thread uses the descriptor any more."""
        _settle([self._running] if self._running else [])


def _wait(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        future.result()


def _settle(futures: Iterable[Future[None]]) -> None:
    """Wait without looking at the outcome; it was, or will be, reported otherwise."""
    for future in futures:
        future.exception()


def _chunks(file: OutputFile, sources: Mapping[str, Source], chunk_bytes: int) -> Iterator[tuple[Chunk, int | None]]:
    """Chunks of a file with the number of the tensor that they belong to; segments never cross a tensor's edge."""
    position, index = 0, 0
    for segment in file.segments:
        while index < len(file.tensors) and position >= file.tensors[index].stop:
            index += 1
        inside = index < len(file.tensors) and file.tensors[index].start <= position
        written = 0
        for chunk in stream(segment, sources, chunk_bytes):
            written += len(chunk)
            yield chunk, index if inside else None
        if written != segment.size_bytes:
            raise SourceError("a source gave another number of bytes than asked for", where=file.path, measured=written, expected=segment.size_bytes)
        position += written


def _write_all(descriptor: int, chunk: Chunk) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def _write_bytes(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_ranks(folder: Path, planned: RankManifest, tensors: Iterable[TensorDigest]) -> Subject:
    """The manifest of split heads, with the digest of each rank's share."""
    found = {(tensor.file, tensor.name): tensor.sha256 for tensor in tensors}
    filled = [
        tensor.model_copy(update={"slices": tuple(item.model_copy(update={"sha256": found[item.file, tensor.name]}) for item in tensor.slices)}) for tensor in planned.tensors
    ]
    data = pretty_json(planned.model_copy(update={"tensors": tuple(filled)}).model_dump(mode="json")).encode()
    _write_bytes(folder / MANIFEST_NAME, data)
    return Subject(name=MANIFEST_NAME, digest=Digest(sha256=sha256_hex(data)))


def _receipt(plan: RewritePlan, subjects: list[Subject], tensors: list[TensorDigest]) -> Receipt:
    rewrite = Rewrite(
        tool="spec-convert",
        tool_version=__version__,
        layout=plan.layout,
        plan_sha256=plan.digest,
        source=plan.source,
        target=plan.target,
        inputs=plan.inputs,
        tensors=tuple(sorted(tensors, key=lambda item: (item.file, item.start, item.name))),
        dropped=plan.dropped,
        notes=plan.notes,
    )
    return Receipt(subject=tuple(subjects), predicate=rewrite)


def _listing(source: Source) -> dict[str, tuple[FileInfo, str]]:
    """Each file, and each file behind a view, with a mark that changes when the file does."""
    behind = getattr(source, "inner", None)
    listing = {f"{path} (behind)": found for path, found in _listing(behind).items()} if behind is not None else {}
    root = _root(source)
    listing.update({info.path: (info, _mark(root / info.path) if root else "") for info in source.files()})
    return listing


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


def _refuse_inside(out: Path, source: Source) -> None:
    root = _root(source)
    if root and out.parent.resolve().is_relative_to(root):
        raise UsageError("the output would lie inside the source", where=str(out), measured=str(root), expected="a folder outside the source", hint="pass another --out")


def _refuse_changed(plan: RewritePlan, listing: Mapping[str, Mapping[str, tuple[FileInfo, str]]]) -> None:
    """The files must be those that the plan was made from."""
    for item in plan.inputs:
        found = listing.get(item.source, {}).get(item.path)
        if found is None or found[0].size_bytes != item.size_bytes:
            raise SourceError(
                "the source is not what the plan was made from",
                where=item.path,
                measured="missing" if found is None else f"{found[0].size_bytes} bytes",
                expected=f"{item.size_bytes} bytes",
                hint="run the command again",
            )


def _refuse_stale(before: object, after: object) -> None:
    if before != after:
        raise SourceError(
            "the source was changed while it was read",
            measured="another listing",
            expected="the same sizes and times as before",
            hint="stop what writes to it and run the command again",
        )


def _refuse_full(folder: Path, plan: RewritePlan) -> None:
    free = shutil.disk_usage(folder).free
    needed = plan.size_bytes + _RESERVE_BYTES
    if free < needed:
        raise WriteError(
            "not enough free space", where=str(folder.parent), measured=f"{free} bytes free", expected=f"at least {needed}", hint="free some space or pass an --out on another disk"
        )


class _explained:  # noqa: N801 (a context manager reads as a verb)
    """Turns an `OSError` of the output side into a `WriteError`."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            hint = {
                errno.ENOSPC: "free some space or pass an --out on another disk",
                errno.EACCES: "pass an --out where you may write",
                errno.EPERM: "pass an --out where you may write",
                errno.EROFS: "pass an --out on a disk that can be written",
            }
            raise WriteError(f"cannot write the output ({error.strerror})", where=str(self._out), hint=hint.get(error.errno or 0, "nothing was written under that name")) from error


__all__ = ["CHUNK_BYTES", "execute"]
