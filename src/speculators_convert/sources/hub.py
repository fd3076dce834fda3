"""Repositories of the Hugging Face Hub, through `huggingface_hub`: its tokens, endpoint, cache and offline mode. The only module that imports it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from speculators_convert.errors import SourceError, SpecConvertError, UsageError
from speculators_convert.sources.base import FileInfo, SourceId, safe_path
from speculators_convert.sources.local import LocalSource
from speculators_convert.sources.ranges import NEVER_S, RETRIED_STATUS, TIMEOUT_S, FailedRequestError, RangeReader, RemoteFile, Response, Session, retry_after_s, wait_before_retry
from speculators_convert.version import __version__

Answer = TypeVar("Answer")
_REFERENCE = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w][\w./-]*))?", re.ASCII)
CHECK_ENDPOINT = "check the endpoint (HF_ENDPOINT) and the network's login page"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONG_LISTING = 50_000
"""From this many files on the paged tree is asked: very long repository answers leave files out."""
_MAX_FILES = 100_000
_LOADED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files of a model that an engine and its tokenizer load."""


_NOT_FOUND = (
    "neither a folder here nor a repository that you may read on the Hub",
    "check the spelling; for a private repository log in: hf auth login (or set HF_TOKEN)",
)
_FAULT = ("the Hub has a fault", "try again later")
_REFUSED = ("the Hub refuses the request", "check that your token may read this repository")
_REFUSALS: Mapping[str | int, tuple[str, str]] = {
    "GatedRepo": ("the repository is gated", "accept its terms on the Hub, then log in: hf auth login (or set HF_TOKEN)"),
    "RevisionNotFound": ("the repository has no such revision", "name a branch, a tag or a commit after the @"),
    "EntryNotFound": ("the repository no longer has this file", "run the command again"),
    "RepoNotFound": _NOT_FOUND,
    401: _NOT_FOUND,
    404: _NOT_FOUND,
    429: ("the Hub limits the rate of requests", "try again later; a token raises the limit"),
}
"""What to say of an X-Error-Code or a status, and what to do."""


@dataclass(frozen=True, slots=True)
class HubReference:
    """`org/name` and a branch, tag, commit or None for the default branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    size_bytes: int | None
    sha256: str | None
    blob_id: str | None


def parse_reference(text: str) -> HubReference | None:
    """`org/name[@revision]`, with or without `hf:` before it; None for anything else."""
    match = _REFERENCE.fullmatch(text)
    return HubReference(match[1], match[2]) if match and ".." not in text and "--" not in match[1] else None


def open_hub(reference: HubReference, *, endpoint: str | None = None, token: str | None = None, timeout_s: float = TIMEOUT_S) -> HubSource | CachedSnapshot:
    """The repository at one commit, resolved now and not again; the cached copy in offline mode."""
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # noqa: PLC0415

    if huggingface_hub.is_offline_mode():
        return _open_cached(reference)
    api = huggingface_hub.HfApi(endpoint=endpoint, token=token, library_name="spec-convert", library_version=__version__)
    commit, repository, entries = _ask(reference, lambda: _listing(api, reference, timeout_s))
    headers = build_hf_headers(token=token, library_name="spec-convert", library_version=__version__)
    reader = RangeReader(
        cast("Session", huggingface_hub.get_session()), headers, _transport_error(), lambda file, response: _explain(f"{reference}, {file.path}", response), timeout_s
    )
    remote = {
        entry.path: (
            RemoteFile(entry.path, huggingface_hub.hf_hub_url(repository, entry.path, revision=commit, endpoint=endpoint), entry.size_bytes, commit, entry.sha256),
            entry.blob_id,
        )
        for entry in entries.values()
        if entry.size_bytes is not None and _is_safe(entry.path)
    }
    return HubSource(SourceId("hub", repository, commit), tuple(_file_info(entries[path]) for path in sorted(entries)), remote, reader)


def download(reference: HubReference) -> Path:
    """The folder of one commit in the Hub cache, with the files that an engine loads: no code, no pickles. Downloads what the cache lacks."""
    import huggingface_hub  # noqa: PLC0415

    def fetch() -> str:
        return huggingface_hub.snapshot_download(reference.repository, revision=reference.revision, allow_patterns=list(_LOADED), library_name="spec-convert")

    return Path(_ask(reference, fetch))


class HubSource:
    """One commit of a repository, read in byte ranges; files that the cache holds are read from there."""

    def __init__(self, identity: SourceId, files: tuple[FileInfo, ...], remote: dict[str, tuple[RemoteFile, str | None]], reader: RangeReader) -> None:
        self._id, self._files, self._remote, self._reader = identity, files, remote, reader

    @property
    def id(self) -> SourceId:
        """Repository and commit."""
        return self._id

    def files(self) -> tuple[FileInfo, ...]:
        """All files of the commit, sorted by path, with the SHA-256 that the Hub publishes for large ones."""
        return self._files

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Bytes `start..stop` of one file."""
        if path not in self._remote:
            raise SourceError("the repository has no such file", where=f"{self._id.name}, {path}")
        file, blob_id = self._remote[path]
        if not 0 <= start <= stop <= file.size_bytes:
            raise SourceError("the file is shorter than expected", where=path, measured=f"{file.size_bytes} bytes", expected=f"{stop} bytes")
        if start == stop:
            return b""
        cached = self._cached(file)
        data = cached.read(path, start, stop) if cached else self._reader.read(file, start, stop)
        if blob_id and file.sha256 is None and stop - start == file.size_bytes:
            _check_blob(file, blob_id, data)
        return data

    def _cached(self, file: RemoteFile) -> LocalSource | None:
        import huggingface_hub  # noqa: PLC0415

        found = huggingface_hub.try_to_load_from_cache(self._id.name, file.path, revision=file.commit)
        if not isinstance(found, str) or Path(found).stat().st_size != file.size_bytes:
            return None
        return LocalSource(Path(found).parents[file.path.count("/")])


class CachedSnapshot(LocalSource):
    """A snapshot folder of the Hub's cache, used in offline mode; large files are named by their SHA-256 there."""

    def __init__(self, folder: Path, identity: SourceId) -> None:
        super().__init__(folder)
        self._id = identity

    def files(self) -> tuple[FileInfo, ...]:
        """All files of the snapshot, sorted by path."""
        return tuple(replace(info, sha256=self._blob_name(info.path)) for info in super().files())

    def _blob_name(self, path: str) -> str | None:
        name = (self.root / path).resolve().name
        return name if _SHA256.fullmatch(name) else None


def _open_cached(reference: HubReference) -> CachedSnapshot:
    import huggingface_hub  # noqa: PLC0415

    try:
        folder = Path(huggingface_hub.snapshot_download(reference.repository, revision=reference.revision, local_files_only=True))
    except (OSError, ValueError) as error:
        raise SourceError(
            "the cache has no complete copy, and offline mode is on (HF_HUB_OFFLINE)", where=str(reference), hint=f"go online once and run: hf download {reference.repository}"
        ) from error
    return CachedSnapshot(folder, SourceId("hub", reference.repository, folder.name))


def _listing(api: Any, reference: HubReference, timeout_s: float) -> tuple[str, str, dict[str, _Entry]]:
    info = api.model_info(reference.repository, revision=reference.revision, files_metadata=True, timeout=timeout_s)
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise SourceError("the Hub did not name a commit", where=str(reference), measured=repr(info.sha)[:80], expected="40 hexadecimal digits")
    named = parse_reference(info.id) if isinstance(info.id, str) else None
    repository = named.repository if named else reference.repository
    siblings: Iterable[Any] = info.siblings or ()
    if len(info.siblings or ()) >= _LONG_LISTING:
        siblings = (item for item in api.list_repo_tree(repository, recursive=True, revision=info.sha) if hasattr(item, "blob_id"))
    return info.sha, repository, _entries(reference, siblings)


def _entries(reference: HubReference, items: Iterable[Any]) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for item in items:
        path = item.path if hasattr(item, "path") else item.rfilename
        size = item.size if type(item.size) is int and 0 <= item.size < 1 << 63 else None
        sha256 = item.lfs.sha256 if item.lfs is not None and _SHA256.fullmatch(str(item.lfs.sha256)) else None
        if path in found:
            raise SourceError("the Hub lists a file twice", where=f"{reference}, {path!r}", hint="check the endpoint (HF_ENDPOINT)")
        found[path] = _Entry(path, size, sha256, item.blob_id if isinstance(item.blob_id, str) and _COMMIT.fullmatch(item.blob_id) else None)
        if len(found) > _MAX_FILES:
            raise SourceError("too many files", where=str(reference), measured=f"> {_MAX_FILES}", hint="download the folder with config.json, then name that folder")
    return found


def _file_info(entry: _Entry) -> FileInfo:
    if not _is_safe(entry.path):
        return FileInfo(entry.path, 0, refused="its name is not a plain relative path")
    if entry.size_bytes is None:
        return FileInfo(entry.path, 0, refused="the Hub states no size for it")
    return FileInfo(entry.path, entry.size_bytes, entry.sha256)


def _is_safe(path: str) -> bool:
    try:
        return isinstance(path, str) and bool(safe_path(path))
    except SourceError:
        return False


def _check_blob(file: RemoteFile, blob_id: str, data: bytes) -> None:
    """Compare a small file with its Git object id, which the listing gives for files outside LFS."""
    measured = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if measured != blob_id:
        raise SourceError("the file is not the one of this commit", where=file.path, measured=f"Git object {measured}", expected=blob_id, hint="run the command again")


def _ask(reference: HubReference, call: Callable[[], Answer]) -> Answer:
    """The answer of `call`; what may pass is tried again, the rest becomes a `SourceError`."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    failures = 0
    while True:
        try:
            return call()
        except HFValidationError as error:
            raise UsageError("this is not a repository name", where=str(reference), measured=str(error)[:160], expected="org/name[@revision]") from error
        except HfHubHTTPError as error:
            answer = cast("Response", error.response)
            failure = FailedRequestError(_explain(str(reference), answer), retry_after_s(answer.headers))
            if answer.status_code not in RETRIED_STATUS:
                raise failure.error from error
        except SpecConvertError:
            raise
        except _transport_error() as error:
            text = f"the Hub cannot be reached ({type(error).__name__}: {str(error)[:160]})"
            failure = FailedRequestError(
                SourceError(text, where=str(reference), hint="check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 uses the cached copy"),
                NEVER_S if type(error).__name__ == "TooManyRedirects" else None,
            )
        except OSError as error:
            what = f"the Hub's client cannot use its files ({error.strerror or error})"
            raise SourceError(what, where=str(error.filename or reference), hint="set HF_HOME to a folder that you may read and write to, or HF_TOKEN") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SourceError(
                "the answer is not that of a Hub", where=str(reference), measured=f"{type(error).__name__}: {str(error)[:120]}", expected="a repository's JSON", hint=CHECK_ENDPOINT
            ) from error
        failures += 1
        wait_before_retry(failure, failures)


def _transport_error() -> type[Exception]:
    """The HTTP client's base error: httpx in huggingface_hub 1.x, httpx2 in 2.x. Both are the first base of `HfHubHTTPError`."""
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    return cast("type[Exception]", HfHubHTTPError.__bases__[0])


def _explain(where: str, response: Response) -> SourceError:
    """What a refusal of the Hub means, from its status and its X-Error-Code."""
    status, headers = response.status_code, response.headers
    code, message, wait = headers.get("X-Error-Code", ""), headers.get("X-Error-Message", "")[:200], headers.get("Retry-After", "")[:40]
    measured = f"status {status}" + (f", {code}" if code else "") + (f": {message}" if message else "") + (f", Retry-After {wait}" if wait else "")
    what, hint = _REFUSALS.get(code) or _REFUSALS.get(status) or (_FAULT if status in RETRIED_STATUS else _REFUSED)
    return SourceError(what, where=where, measured=measured, hint=hint)
