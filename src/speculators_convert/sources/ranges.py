"""Byte ranges over HTTP: bounded, checked before the body is read, resumed where they broke off."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import NoReturn, Protocol
from urllib.parse import urljoin, urlsplit

from speculators_convert.errors import SourceError

MAX_REDIRECTS = 5
MAX_FAILURES = 4
"""Failures in a row; a request that brings `PROGRESS_BYTES` starts the count again."""
PROGRESS_BYTES = 1 << 20
TIMEOUT_S = 30.0
SLOWEST_BYTES_PER_S = 1024
LONGEST_WAIT_S = 60.0
NEVER_S = float("inf")
"""As a wait: trying again is of no use."""
MAX_WHOLE_FILE_BYTES = 32 << 20
RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_REDIRECT_STATUS = frozenset({301, 302, 303, 307, 308})
_EXPIRED_STATUS = frozenset({400, 401, 403, 404, 410})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


class Response(Protocol):
    """What is used of an httpx response."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields, case-insensitive."""

    def iter_raw(self) -> Iterator[bytes]:
        """The body as it comes, not decoded."""


class Session(Protocol):
    """What is used of an httpx client."""

    def stream(self, method: str, url: str, *, headers: Mapping[str, str], timeout: float, follow_redirects: bool) -> AbstractContextManager[Response]:
        """Send a request; the body is read on demand."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a URL; all of its facts come from the listing of one commit."""

    path: str
    url: str
    size_bytes: int
    commit: str
    sha256: str | None = None


class FailedRequestError(Exception):
    """A request that failed in a way that may pass; `error` is raised when it does not."""

    def __init__(self, error: SourceError, wait_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.wait_s = error, wait_s


def wait_before_retry(failure: FailedRequestError, failures: int) -> None:
    """Sleep for as long as the server asks, else 0.5 s doubled each time; raises the error when it is no use to go on."""
    wait_s = failure.wait_s if failure.wait_s is not None else min(0.5 * 2 ** (failures - 1), 8.0)
    if failures >= MAX_FAILURES or wait_s > LONGEST_WAIT_S:
        raise failure.error from failure
    time.sleep(wait_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms; None without one."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError, TypeError):
        return None


@dataclass(slots=True)
class RangeReader:
    """Reads ranges of remote files; remembers where each file was redirected to, so that later ranges cost one request."""

    session: Session
    headers: Mapping[str, str]
    transport_error: type[Exception]
    explain: Callable[[RemoteFile, Response], SourceError]
    timeout_s: float = TIMEOUT_S
    _locations: dict[str, str] = field(default_factory=dict)
    _etags: dict[tuple[str, str], str] = field(default_factory=dict)

    def read(self, file: RemoteFile, start: int, stop: int) -> bytes:
        """Exactly bytes `start..stop`, in as many requests as it takes; `SourceError` when they cannot be had."""
        received, failures = bytearray(), 0
        while start + len(received) < stop:
            before = len(received)
            try:
                self._receive(file, start + len(received), stop, received)
            except FailedRequestError as failure:
                failures = 1 if len(received) - before >= PROGRESS_BYTES else failures + 1
                wait_before_retry(failure, failures)
        return bytes(received)

    def _receive(self, file: RemoteFile, start: int, stop: int, received: bytearray) -> None:
        """Append what one chain of requests brings."""
        url = self._locations.get(file.path, file.url)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                with self.session.stream("GET", url, headers=self._request_headers(file, url, start, stop), timeout=self.timeout_s, follow_redirects=False) as response:
                    if response.status_code not in _REDIRECT_STATUS:
                        self._accept(file, url, response, start, stop)
                        self._locations[file.path] = url
                        self._body(file, response, stop - start, received)
                        return
                    _check_identity(file, response)
                    url = _redirect(file, url, response)
        except self.transport_error as error:
            text = f"the connection failed ({type(error).__name__}: {str(error)[:160]})"
            raise FailedRequestError(SourceError(text, where=file.path, hint="check the network, then run the command again")) from error
        raise SourceError(
            "the server redirects in a circle", where=file.path, measured=f"more than {MAX_REDIRECTS} redirects", expected="the file", hint="check the endpoint (HF_ENDPOINT)"
        )

    def _request_headers(self, file: RemoteFile, url: str, start: int, stop: int) -> dict[str, str]:
        """Our headers; the token only goes to the host that the user named."""
        same = urlsplit(url)[:2] == urlsplit(file.url)[:2]
        kept = {key: value for key, value in self.headers.items() if same or key.lower() not in {"authorization", "cookie"}}
        return {**kept, "Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}

    def _accept(self, file: RemoteFile, url: str, response: Response, start: int, stop: int) -> None:
        """Return only when the body will be exactly the bytes asked for."""
        status, headers = response.status_code, response.headers
        if status in RETRIED_STATUS:
            raise FailedRequestError(self.explain(file, response), retry_after_s(headers))
        if url != file.url and status in _EXPIRED_STATUS and self._locations.pop(file.path, ""):
            raise FailedRequestError(self.explain(file, response), 0.0)  # a signed address has run out: ask for a new one
        if status == 416:
            _refuse(file, "the server has a shorter file than it listed", f"no bytes {start}..{stop}", f"{file.size_bytes} bytes")
        if status not in {200, 206}:
            raise self.explain(file, response)
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            _refuse(file, "the server sent an encoded body for a byte range", f"Content-Encoding {encoding[:40]}", "bytes as they stand in the file")
        _check_identity(file, response)
        if status == 200:
            _accept_whole(file, headers, start, stop)
        else:
            _accept_part(file, headers, start, stop)
        self._check_etag(file, url, headers.get("ETag", ""))

    def _check_etag(self, file: RemoteFile, url: str, etag: str) -> None:
        etag = etag.removeprefix("W/")
        first = self._etags.setdefault((file.path, url.partition("?")[0]), etag)
        if first != etag:
            _refuse(file, "the file changed between two requests", f"ETag {etag[:80]}", f"ETag {first[:80]}", "run the command again; name a commit as the revision")

    def _body(self, file: RemoteFile, response: Response, expected: int, received: bytearray) -> None:
        base, began = len(received), time.monotonic()
        for part in response.iter_raw():
            received += part
            got, took = len(received) - base, time.monotonic() - began
            if got > expected:
                _refuse(file, "the server sent more bytes than were asked for", f"over {got}", f"{expected}")
            if took > self.timeout_s and got < took * SLOWEST_BYTES_PER_S:
                raise FailedRequestError(
                    SourceError(
                        "the server sends too slowly",
                        where=file.path,
                        measured=f"{got} bytes in {took:.0f} s",
                        expected=f"{SLOWEST_BYTES_PER_S} bytes a second or more",
                        hint="try again later",
                    )
                )
        if len(received) - base < expected:
            raise FailedRequestError(
                SourceError("the server cut the body off", where=file.path, measured=f"{len(received) - base} bytes", expected=f"{expected} bytes", hint="run the command again")
            )


def _accept_part(file: RemoteFile, headers: Mapping[str, str], start: int, stop: int) -> None:
    text = headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None or tuple(map(int, match.groups())) != (start, stop - 1, file.size_bytes):
        _refuse(file, "the server answered with another byte range", f"Content-Range {text[:80] or 'missing'}", f"bytes {start}-{stop - 1}/{file.size_bytes}")
    _check_length(file, headers, stop - start)


def _accept_whole(file: RemoteFile, headers: Mapping[str, str], start: int, stop: int) -> None:
    """Status 200 ignores the range. It is right only where the whole of a small file was asked for."""
    if (start, stop) != (0, file.size_bytes) or file.size_bytes > MAX_WHOLE_FILE_BYTES:
        _refuse(
            file, "the server ignores byte ranges and would send the whole file", "status 200", "status 206", "download the folder first (hf download), or use another endpoint"
        )
    if "text/html" in headers.get("Content-Type", "").lower() and not file.path.endswith((".html", ".htm")):
        _refuse(
            file, "the server answered with a web page", f"Content-Type {headers['Content-Type'][:60]}", "the file", "check the endpoint (HF_ENDPOINT) and the network's login page"
        )
    _check_length(file, headers, file.size_bytes)


def _check_length(file: RemoteFile, headers: Mapping[str, str], expected: int) -> None:
    length = headers.get("Content-Length")
    if length is not None and length.strip() != str(expected):
        _refuse(file, "the server announces another length", f"Content-Length {length[:40]}", str(expected))


def _check_identity(file: RemoteFile, response: Response) -> None:
    """Compare what the Hub says of the file on each answer with what it listed."""
    commit = response.headers.get("X-Repo-Commit", file.commit)
    if commit != file.commit:
        _refuse(file, "the server answered from another commit", commit[:60], file.commit, "run the command again")
    linked = response.headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
    if linked and file.sha256 and linked != file.sha256:
        _refuse(file, "the server has another file than it listed", f"SHA-256 {linked[:64]}", file.sha256, "run the command again; name a commit as the revision")


def _redirect(file: RemoteFile, url: str, response: Response) -> str:
    location = response.headers.get("Location", "")
    try:
        target = urlsplit(urljoin(url, location))
        usable = bool(location and target.hostname) and target.scheme in {"http", "https"} and location.isascii() and location.isprintable() and (target.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or (urlsplit(url).scheme == "https" and target.scheme == "http"):
        _refuse(file, "the server redirects to an address that is not safe to follow", repr(location[:120]), "an http(s) address, and https after https")
    return target.geturl()


def _refuse(file: RemoteFile, what: str, measured: str, expected: str, hint: str = "check the endpoint (HF_ENDPOINT), or download the folder first (hf download)") -> NoReturn:
    raise SourceError(what, where=file.path, measured=measured, expected=expected, hint=hint)
