"""Several machines that serve one model together: machine 0 says which server runs, the others start their part of it and end it with hers.

Machine 0 listens at the meeting address and answers each GET with the name of the server that runs now, nothing between servers,
and an end mark. Ranks of the n-th server meet one port further for each server, so that a port that is still closing is not needed again.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import Nodes
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.process import Live, running

POLL_SECONDS, LINGER_SECONDS, LOST_SECONDS = 0.5, 8.0, 20.0
NOBODY, DONE = "", "done"
MAX_PORT = 65_535 - 32
"""Leaves room for a port of each server behind it."""
_HOST = re.compile(r"[A-Za-z0-9._-]+")


def rendezvous(nodes: Nodes, index: int) -> str:
    """Where the ranks of the `index`-th server meet."""
    host, port = _split(nodes.address)
    return f"{host}:{port + 1 + index}"


class Leader:
    """Machine 0's side. With one machine it says nothing to nobody."""

    def __init__(self) -> None:
        self.current = NOBODY

    @contextlib.contextmanager
    def runs(self, server: ServerConfig) -> Iterator[None]:
        """While the server runs, the others run their part."""
        self.current = server.name if server.nodes is not None else NOBODY
        try:
            yield
        finally:
            self.current = NOBODY


@contextlib.contextmanager
def leading(nodes: Nodes | None) -> Iterator[Leader]:
    """Listen at the meeting address until the run ends; `SmokeError` when the address cannot be had."""
    leader = Leader()
    if nodes is None:
        yield leader
        return
    host, port = _split(nodes.address)
    try:
        listener = ThreadingHTTPServer((host, port), _handler(leader))
    except OSError as error:
        hint = "name an address of this machine and a free port; the ports behind it are used too"
        raise SmokeError(f"machine 0 cannot listen at its address ({error.strerror})", where="--dist-init-addr", measured=nodes.address, hint=hint) from error
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield leader
    finally:
        leader.current = DONE
        time.sleep(LINGER_SECONDS)
        listener.shutdown()
        listener.server_close()


def follow(nodes: Nodes, servers: Sequence[ServerConfig], logs: Path, timeout: float) -> list[str]:
    """Run this machine's part of each server that machine 0 names, and return their names. `SmokeError` when machine 0 is not there."""
    by_name, served, live = {server.name: server for server in servers}, list[str](), Live()
    try:
        while (name := _asked(nodes, LOST_SECONDS, lost=DONE) if served else _asked(nodes, timeout)) != DONE:
            if name == NOBODY:
                time.sleep(POLL_SECONDS)
                continue
            if name not in by_name:
                raise SmokeError("machine 0 runs a server that this machine does not plan", where=nodes.address, measured=name, hint="give both the same options")
            with contextlib.suppress(SmokeError), running(by_name[name], logs / f"{name}.log", timeout=timeout, live=live) as up:
                while _asked(nodes, LOST_SECONDS, lost=DONE) == name:
                    up.check()  # a part that ended is machine 0's to report: it sees the whole server fail
                    time.sleep(POLL_SECONDS)
            served.append(name)
            while _asked(nodes, LOST_SECONDS, lost=DONE) == name:
                time.sleep(POLL_SECONDS)
    finally:
        live.end()
    return served


def _asked(nodes: Nodes, patience: float, lost: str | None = None) -> str:
    """What machine 0 says; `lost`, or `SmokeError` without it, when she has not answered for `patience` seconds. A machine 0 that was there and is gone has ended."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(f"http://{nodes.address}/", timeout=5) as response:
                found = json.loads(response.read())["server"]
                if not isinstance(found, str):
                    raise TypeError("no name of a server")
                return found
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline and lost is not None:
                return lost
            if time.monotonic() > deadline:
                raise SmokeError(f"machine 0 does not answer ({error})", where="--dist-init-addr", measured=nodes.address, hint="start machine 0 with the same address") from error
            time.sleep(POLL_SECONDS)


def _handler(leader: Leader) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"server": leader.current}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise SmokeError("this is not an address", where="--dist-init-addr", measured=address, expected=f"HOST:PORT, a name or an IPv4 address and a port up to {MAX_PORT}")
    return host, int(port)
