"""A server's life: start, wait until it answers, and end it with all that it started, on every way out."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from speculators_convert.errors import SmokeError
from speculators_convert.serving import devices, guard
from speculators_convert.serving.client import Client
from speculators_convert.serving.command import Ports, surroundings, words
from speculators_convert.serving.config import ServerConfig
from speculators_convert.serving.failure import Failure, read
from speculators_convert.serving.ports import free_ports

POLL_SECONDS, END_SECONDS, ATTEMPTS = 0.25, 40.0, 3
_TELLING = ("SGLANG_", "CUDA_VISIBLE_DEVICES", "SPEC_CONVERT_SGLANG", "TRITON_INTERPRET", "NCCL_")


class ServerFailedError(SmokeError):
    """A server ended by itself, stayed silent or took too long; `failure` has what its log says."""

    code = "E410"

    def __init__(self, what: str, found: Failure, *, where: str, measured: str, expected: str, hint: str) -> None:
        self.failure = found
        super().__init__(what, where=where, measured=measured, expected=expected, hint=hint)


class NotStartedError(SmokeError):
    """The command starts no server any more."""

    code = "E411"


class Live:
    """The servers of one command, so that whoever is interrupted can end those that other threads wait for."""

    def __init__(self) -> None:
        self._lock, self._processes, self._closed = threading.Lock(), set[subprocess.Popen[bytes]](), False

    def start(self, words: list[str], environment: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """A new process; `NotStartedError` after `close`."""
        with self._lock:
            if self._closed:
                raise NotStartedError("the run was ended", where=words[0])
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)  # noqa: S603
            self._processes.add(process)
            return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Its owner has ended it."""
        with self._lock:
            self._processes.discard(process)

    def close(self) -> None:
        """Start none any more."""
        with self._lock:
            self._closed = True

    def end(self) -> None:
        """Ask all to end and start none any more; the threads that wait for them then end by themselves."""
        self.close()
        with self._lock:
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    config: ServerConfig
    client: Client
    command: tuple[str, ...]
    log: Path
    start_seconds: float
    process: subprocess.Popen[bytes]
    timeout: float
    """Seconds from the start to the last answer."""
    deadline: float
    variables: dict[str, str]
    """Those of its environment that choose how it serves."""
    mark: str

    def held_bytes(self) -> int | None:
        """Device memory of all its processes; None where it is not known."""
        return devices.held_bytes(guard.marked(self.mark))

    def check(self) -> None:
        """`ServerFailedError` when the server is gone."""
        if self.process.poll() is not None:
            raise failed(self.config, self.log, f"exit status {self.process.returncode}")

    @contextlib.contextmanager
    def asked(self, what: str) -> Iterator[None]:
        """While requests run: an unanswered one is read as the server's failure, with the step in which it came."""
        try:
            yield
        except SmokeError as error:
            if isinstance(error, ServerFailedError):
                raise
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)  # a server that died while it was asked is reaped a moment later
            if self.process.poll() is not None:
                raise failed(self.config, self.log, f"exit status {self.process.returncode}", what) from error
            if time.monotonic() > self.deadline:
                raise _too_late(self.config, self.log, self.timeout, what) from error
            raise failed(self.config, self.log, str(error), what) from error
        self.check()
        if time.monotonic() > self.deadline:
            raise _too_late(self.config, self.log, self.timeout, what)


@contextlib.contextmanager
def running(config: ServerConfig, log: Path, *, timeout: float, live: Live | None = None) -> Iterator[Running]:
    """The server of `config`, its output in `log`, for at most `timeout` seconds from its start to its last answer.

    `ServerFailedError` when it does not come up. No process of it is left when this returns, whatever happened; a guard process sees to
    that even when this one is killed.
    """
    deadline = time.monotonic() + timeout
    for attempt in range(ATTEMPTS):
        up = False
        try:
            with _started(config, log, deadline, timeout, live or Live()) as server:
                up = True
                yield server
                return
        except ServerFailedError as error:
            if up or not error.failure.port_taken or attempt + 1 == ATTEMPTS:
                raise


@contextlib.contextmanager
def _started(config: ServerConfig, log: Path, deadline: float, timeout: float, live: Live) -> Iterator[Running]:
    ports = Ports(*free_ports(2))
    command, environment, mark = words(config, ports), surroundings(config), uuid.uuid4().hex
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        process = live.start([sys.executable, guard.__file__, str(os.getpid()), mark, *command], environment, output)
    client = Client(ports.http, timeout, deadline)
    try:
        while not client.healthy():
            if process.poll() is not None:
                raise failed(config, log, f"exit status {process.returncode}")
            if time.monotonic() > deadline:
                raise _too_late(config, log, timeout)
            time.sleep(POLL_SECONDS)
        yield Running(config, client, tuple(command), log, time.monotonic() - began, process, timeout, deadline, telling(environment), mark)
    finally:
        client.close()
        _end(process, mark)
        live.forget(process)


def telling(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that choose how SGLang serves."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_TELLING)}


def failed(config: ServerConfig, log: Path, measured: str, during: str | None = None, silent: str = "") -> ServerFailedError:
    """The error of a server, read from its log; `silent` is the hint where the log has no error."""
    found = read(log, during)
    lines = [f"the server failed while {found.stage}"]
    if found.line:
        lines.append(found.line)
    if found.code:
        lines.append(f"this is what check {found.code} finds: spec-convert explain {found.code}")
    lines.append(f"full log: {log}")
    hint = found.hint if found.line or not silent else silent
    return ServerFailedError("; ".join(lines), found, where=config.name, measured=measured, expected="a server that answers", hint=hint)


def _too_late(config: ServerConfig, log: Path, timeout: float, during: str | None = None) -> ServerFailedError:
    """The same words wherever the server was when its time ended."""
    return failed(config, log, f"no last answer after {timeout:g} s (--timeout)", during, "give it more time with --timeout, or look in its log for what it waits for")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ask the guard to end the server; if it does not, end all that carries the mark."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in guard.marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def require_sglang() -> None:
    """`SmokeError` where SGLang is not installed beside this package."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("sglang") is None:
        raise SmokeError("SGLang is not installed in this Python", where=sys.executable, hint='pip install "speculators-convert[sglang]"')
