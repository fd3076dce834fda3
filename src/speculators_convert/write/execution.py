"""Follow a plan: stream, hash while copying, sync, and let the finished folder appear under its name in one step."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from speculators_convert.errors import WriteError
from speculators_convert.model import pretty_json, sha256_hex
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.rank_manifest import MANIFEST_NAME, RankManifest
from speculators_convert.rewrite.receipt import RECEIPT_NAME, Digest, Receipt, Rewrite, Subject, TensorDigest
from speculators_convert.sources import Source, verify
from speculators_convert.version import __version__
from speculators_convert.write.claim import claimed
from speculators_convert.write.file_writer import CHUNK_BYTES, FileWriter, write_bytes
from speculators_convert.write.links import Linked, link_files
from speculators_convert.write.source_watch import listing, refuse_changed, refuse_inside, refuse_stale

_RESERVE_BYTES = 1024 * 1024
Progress = Callable[[int, int], None]


def execute(
    plan: RewritePlan, source: Source, out: Path, *, target: Source | None = None, chunk_bytes: int = CHUNK_BYTES, link: bool = False, progress: Progress | None = None
) -> Receipt:
    """Write `plan` to `out`, which must not exist. On any failure nothing stands under that name. With `link`, files that equal a source file are linked where they can be."""
    sources: dict[str, Source] = {"draft": source} if target is None else {"draft": source, "target": target}
    for item in sources.values():
        refuse_inside(out, item)
    before = {origin: listing(item) for origin, item in sources.items()}
    refuse_changed(plan, before)
    with _explained(out), claimed(out) as folder:
        linked = link_files(folder, plan.files, sources) if link else Linked()
        _refuse_full(folder, plan.size_bytes - linked.size_bytes)
        subjects, tensors = list[Subject](), list[TensorDigest]()
        tell = _counter(plan.size_bytes, progress)
        with ThreadPoolExecutor(3) as pool:
            writer = FileWriter(folder, sources, chunk_bytes, pool)
            for file in plan.files:
                made = linked.made.get(file.path)
                digest, found = writer.write(file, tell) if made is None else writer.read_back(file, made[1], tell)
                subjects.append(Subject(name=file.path, digest=Digest(sha256=digest)))
                tensors.extend(found)
        for item in sources.values():
            verify(item)
        if plan.ranks is not None:
            subjects.append(_write_ranks(folder, plan.ranks, tensors))
        refuse_stale(before, {origin: listing(item) for origin, item in sources.items()})
        receipt = _receipt(plan, subjects, tensors, linked.notes() if link else ())
        write_bytes(folder / RECEIPT_NAME, pretty_json(receipt.document()).encode())
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


def _write_ranks(folder: Path, planned: RankManifest, tensors: Iterable[TensorDigest]) -> Subject:
    """The manifest of split heads, with the digest of each rank's share."""
    found = {(tensor.file, tensor.name): tensor.sha256 for tensor in tensors}
    filled = [
        tensor.model_copy(update={"slices": tuple(item.model_copy(update={"sha256": found[item.file, tensor.name]}) for item in tensor.slices)}) for tensor in planned.tensors
    ]
    data = pretty_json(planned.model_copy(update={"tensors": tuple(filled)}).model_dump(mode="json")).encode()
    write_bytes(folder / MANIFEST_NAME, data)
    return Subject(name=MANIFEST_NAME, digest=Digest(sha256=sha256_hex(data)))


def _receipt(plan: RewritePlan, subjects: list[Subject], tensors: list[TensorDigest], notes: Iterable[str]) -> Receipt:
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
        notes=(*plan.notes, *notes),
    )
    return Receipt(subject=tuple(subjects), predicate=rewrite)


def _refuse_full(folder: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    needed = size_bytes + _RESERVE_BYTES
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
