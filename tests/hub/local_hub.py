"""A Hub on localhost: the parts of the Hub's HTTP interface that downloads use, with faults on demand.

Two servers run, the Hub itself and a CDN on another address, so that redirects leave the host as they do in reality.
Every request is logged with the bytes that were sent in answer, headers included.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

CHUNK_BYTES = 1 << 18
PAGE = b"<!doctype html><title>Log in</title><p>Please accept the terms of this network."


@dataclass
class Body:
    """Content of one file: bytes or a file on disk (which may be sparse)."""

    data: bytes | Path
    lfs: bool = False
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.sha256:
            self.sha256 = hashlib.sha256(self.data).hexdigest() if isinstance(self.data, bytes) else _file_sha256(self.data)

    @property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    @property
    def blob_id(self) -> str:
        content = self.data if isinstance(self.data, bytes) and not self.lfs else f"oid sha256:{self.sha256}".encode()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob_id

    def parts(self, start: int, stop: int) -> Iterator[bytes]:
        if isinstance(self.data, bytes):
            yield self.data[start:stop]
            return
        with self.data.open("rb") as file:
            file.seek(start)
            while start < stop and (part := file.read(min(CHUNK_BYTES, stop - start))):
                start += len(part)
                yield part


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class Repository:
    """Files of each commit, and where the branches stand."""

    commits: dict[str, dict[str, Body]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: dict[str, Body], *, ref: str = "main") -> str:
        text = repr([len(self.commits), sorted((path, body.sha256) for path, body in files.items())])
        name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = files
        self.refs[ref] = name
        return name


@dataclass
class Fault:
    """A misbehaviour: `kind` at `at` (api, resolve or cdn) for the next `times` requests whose path contains `path`."""

    at: str
    kind: str
    times: int = 1
    path: str = ""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    after_bytes: int = 0
    delay_s: float = 0.0
    skip: int = 0


@dataclass
class Exchange:
    """One request and what was sent for it."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent_bytes: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: LocalHub
    role: str

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.exchange = Exchange(self.role, self.command, self.path, {key.lower(): value for key, value in self.headers.items()})
        self.hub.log.append(self.exchange)
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        try:
            if self.role == "cdn":
                self._cdn(path, parse_qs(parts.query))
            elif path.startswith("/api/models/"):
                self._api(path.removeprefix("/api/models/"), parts.path.removeprefix("/api/models/"), parse_qs(parts.query))
            elif path.startswith("/api/resolve-cache/models/"):
                org, name, commit, file = path.removeprefix("/api/resolve-cache/models/").split("/", 3)
                self._content("resolve", self.hub.repositories[f"{org}/{name}"].commits[commit][file], {"X-Repo-Commit": commit})
            elif "/resolve/" in path:
                self._resolve(*path[1:].split("/resolve/", 1))
            else:
                self._reply(404, b"")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # -- answers -------------------------------------------------------------------------------------------------

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": str(len(body)), **(headers or {})})
        self._write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.exchange.status = status
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Connection", "keep-alive")
        self._headers_buffer.append(b"\r\n")
        head = b"".join(self._headers_buffer)
        self._headers_buffer = []
        self.wfile.write(head)
        self.exchange.sent_bytes += len(head)

    def _write(self, body: bytes) -> None:
        if self.command != "HEAD" and body:
            self.wfile.write(body)
            self.exchange.sent_bytes += len(body)

    def _json(self, value: object, headers: dict[str, str] | None = None) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8", **(headers or {})})

    def _error(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self._reply(status, body, {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"})

    # -- rules of the Hub ----------------------------------------------------------------------------------------

    def _fault(self, at: str) -> Fault | None:
        for fault in self.hub.faults:
            if fault.at == at and fault.times and fault.path in unquote(self.path):
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def _repository(self, repo_id: str, *, content: bool) -> Repository | None:
        """The repository if this caller may see it; else the Hub's own refusal is sent."""
        repository = self.hub.repositories.get(self.hub.renamed.get(repo_id, repo_id))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            self._error(401, "", "Invalid credentials in Authorization header")
            return None
        if repository is None or (repository.private and not token):
            self._error(401, "RepoNotFound", "Repository not found")
            return None
        if repository.gated and content and self.hub.tokens.get(token) != "accepted":
            self._error(403 if token else 401, "GatedRepo", f"Access to model {repo_id} is restricted")
            return None
        return repository

    def _commit(self, repository: Repository, revision: str) -> str | None:
        commit = repository.refs.get(revision, revision)
        if commit in repository.commits:
            return commit
        self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def _api(self, path: str, raw: str, query: dict[str, list[str]]) -> None:
        fault = self._fault("api")
        if fault and self._plain_fault(fault):
            return
        org, name, *rest = path.split("/")
        repository = self._repository(f"{org}/{name}", content=False)
        if repository is None:
            return
        revision = unquote(raw.split("/", 3)[3].partition("/")[0]) if len(rest) > 1 else "main"
        commit = self._commit(repository, revision)
        if commit is None:
            return
        files = repository.commits[commit]
        if rest and rest[0] == "tree":
            self._tree(files, query)
            return
        siblings = [_sibling(path, body, blobs="blobs" in query) for path, body in files.items()][: self.hub.sibling_limit]
        identity = self.hub.renamed.get(f"{org}/{name}", f"{org}/{name}")
        self._json(
            {
                "_id": "1",
                "id": identity,
                "modelId": identity,
                "sha": commit,
                "private": repository.private,
                "gated": "manual" if repository.gated else False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": siblings,
            }
        )

    def _tree(self, files: dict[str, Body], query: dict[str, list[str]]) -> None:
        start = int(query.get("cursor", ["0"])[0])
        page = sorted(files)[start : start + self.hub.page_size]
        rows = []
        for path in page:
            body = files[path]
            lfs = {"lfs": {"oid": body.sha256, "size": body.size, "pointerSize": 134}} if body.lfs else {}
            rows.append({"type": "file", "oid": body.blob_id, "size": body.size, "path": path, **lfs})
        stop = start + len(page)
        link = {"Link": f'<{self.hub.url}{urlsplit(self.path).path}?recursive=True&expand=False&cursor={stop}>; rel="next"'} if stop < len(files) else {}
        self._json(rows, link)

    def _resolve(self, repo_id: str, rest: str) -> None:
        fault = self._fault("resolve")
        if fault and self._plain_fault(fault):
            return
        repository = self._repository(repo_id, content=True)
        if repository is None:
            return
        revision, _, file = rest.partition("/")
        commit = self._commit(repository, revision)
        if commit is None:
            return
        body = repository.commits[commit].get(file)
        if body is None:
            self._error(404, "EntryNotFound", "Entry not found")
            return
        headers = {
            "X-Repo-Commit": fault.headers.get("X-Repo-Commit", commit) if fault else commit,
            "X-Linked-Etag": f'"{body.etag}"',
            "X-Linked-Size": str(body.size),
            "ETag": f'"{body.etag}"',
        }
        if fault and fault.kind == "changed":
            headers["X-Linked-Etag"] = f'"{hashlib.sha256(b"other").hexdigest()}"'
        if body.lfs:
            headers["Location"] = f"{self.hub.cdn_url}/blob/{body.sha256}?sig={self.hub.signature}"
            self.hub.blobs[body.sha256] = body
            self._reply(302, b"Found. Redirecting", headers)
        else:
            headers["Location"] = f"/api/resolve-cache/models/{repo_id}/{commit}/{quote(file)}?etag=%22{body.etag}%22"
            self._reply(307, b"Temporary Redirect", headers)

    def _cdn(self, path: str, query: dict[str, list[str]]) -> None:
        if "Authorization" in self.headers:
            self.hub.leaked_tokens += 1
        if query.get("sig") != [self.hub.signature]:
            self._reply(403, b"<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
            return
        self._content("cdn", self.hub.blobs[path.removeprefix("/blob/")], {})

    def _content(self, at: str, body: Body, headers: dict[str, str]) -> None:
        """The body, whole or in the range asked for, or spoilt by a fault."""
        fault = self._fault(at)
        if fault and self._plain_fault(fault):
            return
        kind = fault.kind if fault else ""
        headers = {"ETag": f'"{body.etag}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
        wanted = self.headers.get("Range")
        start, stop, status = 0, body.size, 200
        if wanted and kind != "ignore-range":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop, status = int(first), min(int(last) + 1 if last else body.size, body.size), 206
            if start >= body.size:
                self._reply(416, b"", {"Content-Range": f"bytes */{body.size}"})
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{body.size}"
        self._spoilt(kind, fault, body, headers, start, stop, status)

    def _spoilt(self, kind: str, fault: Fault | None, body: Body, headers: dict[str, str], start: int, stop: int, status: int) -> None:
        if kind == "wrong-range":
            headers["Content-Range"] = f"bytes {start + 1}-{stop}/{body.size}"
        elif kind == "wrong-total":
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{body.size + 1}"
        elif kind == "no-content-range":
            headers.pop("Content-Range", None)
        elif kind == "changed":
            headers["ETag"] = '"another"'
        if kind in {"gzip", "too-long"}:
            data = b"".join(body.parts(start, stop))
            spoilt = gzip.compress(data) if kind == "gzip" else data + b"x" * 4096
            self._head(status, {**headers, "Transfer-Encoding": "chunked", **({"Content-Encoding": "gzip"} if kind == "gzip" else {})})
            self._write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(spoilt), spoilt))
            return
        self._head(status, {"Content-Length": str(stop - start), **headers})
        sent = 0
        for part in body.parts(start, stop) if self.command != "HEAD" else ():
            if fault and kind in {"cut", "slow", "stall"}:
                self._troubled(fault, kind, part, sent)
                if kind == "cut" and sent + len(part) > fault.after_bytes:
                    return
            else:
                if self.hub.bytes_per_s:
                    time.sleep(len(part) / self.hub.bytes_per_s)
                self._write(part)
            sent += len(part)

    def _troubled(self, fault: Fault, kind: str, part: bytes, sent: int) -> None:
        if kind == "cut":
            keep = max(0, fault.after_bytes - sent)
            self._write(part[:keep])
            if len(part) > keep:
                self.wfile.flush()
                self.close_connection = True
            return
        step = max(1, len(part) // 8) if kind == "slow" else 1
        for position in range(0, len(part), step):
            self._write(part[position : position + step])
            if self.hub.closing.wait(fault.delay_s):
                raise BrokenPipeError

    def _plain_fault(self, fault: Fault) -> bool:
        """Faults that need no body; True when the answer is complete."""
        if fault.kind == "status":
            self._reply(fault.status, b"trouble", {"Content-Type": "text/plain", **fault.headers})
        elif fault.kind == "html":
            self._reply(200, PAGE.ljust(fault.after_bytes, b" "), {"Content-Type": "text/html; charset=utf-8"})
        elif fault.kind == "redirect":
            self._reply(302, b"", {"Location": fault.headers.get("Location", self.path)})
        elif fault.kind == "drop":
            self.close_connection = True
        elif fault.kind == "json":
            self._reply(200, fault.headers["body"].encode(), {"Content-Type": "application/json"})
        else:
            return False
        return True


def _sibling(path: str, body: Body, *, blobs: bool) -> dict[str, object]:
    if not blobs:
        return {"rfilename": path}
    lfs = {"lfs": {"sha256": body.sha256, "size": body.size, "pointerSize": 134}} if body.lfs else {}
    return {"rfilename": path, "size": body.size, "blobId": body.blob_id, **lfs}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@dataclass
class LocalHub:
    """The two servers with their repositories, faults and log."""

    url: str = ""
    cdn_url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    log: list[Exchange] = field(default_factory=list)
    blobs: dict[str, Body] = field(default_factory=dict)
    signature: str = "1"
    page_size: int = 1000
    sibling_limit: int | None = None
    bytes_per_s: float = 0.0
    leaked_tokens: int = 0
    closing: threading.Event = field(default_factory=threading.Event)

    def add(self, repo_id: str, folder: Path | dict[str, Body]) -> Repository:
        """A repository with one commit on main; safetensors files of a folder go to LFS."""
        repository = self.repositories.setdefault(repo_id, Repository())
        repository.commit(folder if isinstance(folder, dict) else folder_files(folder))
        return repository

    @property
    def requests(self) -> int:
        return len(self.log)

    @property
    def sent_bytes(self) -> int:
        return sum(exchange.sent_bytes for exchange in self.log)


def folder_files(folder: Path) -> dict[str, Body]:
    """All files of a folder as bodies."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): Body(path if path.suffix == ".safetensors" else path.read_bytes(), lfs=path.suffix == ".safetensors") for path in paths}


@contextmanager
def run_hub() -> Iterator[LocalHub]:
    """A running hub; both servers end with the block."""
    hub = LocalHub()
    hosts = {"hub": "127.0.0.1", "cdn": "127.0.0.2"}
    servers = [_Server((host, 0), type("Handler", (_Handler,), {"hub": hub, "role": role})) for role, host in hosts.items()]
    hub.url, hub.cdn_url = (f"http://{server.server_address[0]}:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
