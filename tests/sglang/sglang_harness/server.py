"""A stock SGLang server in a process group of its own, spoken to over HTTP."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglang_harness.environment import PYTHON, TRAINED, Site
from speculators_convert.serving.ports import free_ports

START_SECONDS = 900
PLUGINS = "speculators_dspark,cpu_stand_in,draft_recorder"


class NotStartedError(AssertionError):
    """The server ended or stayed silent; the text holds the end of its log."""


@dataclass(frozen=True)
class Answer:
    """One completion as SGLang reports it."""

    request: str
    output_ids: list[int]
    verify_steps: int
    accepted: int


@dataclass
class Server:
    """A running server."""

    port: int
    log: Path

    def generate(self, prompts: Sequence[Sequence[int]], *, tokens: int = 64, **sampling: float) -> list[Answer]:
        """Complete each prompt of token ids, all in one request; greedy unless `sampling` says otherwise."""
        body = {"input_ids": [list(prompt) for prompt in prompts], "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}}
        return [_answer(item) for item in self.post("/generate", body, timeout=600)]

    def post(self, path: str, body: object, timeout: float) -> object:
        """POST JSON, return JSON."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return json.loads(response.read())

    def get(self, path: str) -> object:
        """GET JSON."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return json.loads(response.read())


@contextlib.contextmanager
def serve(
    site: Site, draft: Path, log: Path, *, tp: int = 1, plugins: str = PLUGINS, target: Path = TRAINED / "tiny-target", flags: Sequence[str] = (), **environ: str
) -> Iterator[Server]:
    """The command of the user's guide on the CPU: start, wait until it answers, and end it with its children."""
    port = free_port()
    command = [
        str(PYTHON.parent / "sglang"), "serve", "--model-path", str(target), "--device", "cpu", "--attention-backend", "torch_native",
        "--sampling-backend", "pytorch", "--dtype", "float32", "--max-total-tokens", "4096", "--disable-radix-cache", "--mem-fraction-static", "0.5", "--sleep-on-idle",
        "--max-running-requests", "4", "--port", str(port), "--nccl-port", str(free_port()), "--tp-size", str(tp), "--random-seed", "1", "--skip-server-warmup",
        "--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", str(draft), *flags,
    ]  # fmt: skip
    with launch(command, port, site.environ(plugins=plugins, tp=tp, **environ), log) as server:
        yield server


@contextlib.contextmanager
def launch(command: Sequence[str], port: int, environ: dict[str, str], log: Path, *, start_seconds: float = START_SECONDS, seconds: float | None = None) -> Iterator[Server]:
    """Any server command that listens on `port`; killed after `seconds`, whatever it does then."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ, start_new_session=True)
    deadline = threading.Timer(seconds, _end, [process]) if seconds else None
    if deadline:
        deadline.start()
    try:
        _wait(process, port, log, start_seconds)
        yield Server(port, log)
    finally:
        if deadline:
            deadline.cancel()
        _end(process)


def free_port() -> int:
    """A port that nothing uses now, and no outgoing connection gets."""
    return free_ports(1)[0]


def tail(log: Path, lines: int = 40) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _answer(item: dict) -> Answer:
    meta = item["meta_info"]
    return Answer(meta["id"], item["output_ids"], meta["spec_verify_ct"], meta["spec_num_correct_drafts"])


def _wait(process: subprocess.Popen, port: int, log: Path, start_seconds: float) -> None:
    deadline = time.monotonic() + start_seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotStartedError(f"the server ended with {process.returncode}:\n{tail(log)}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            if response.status == 200:
                return
        time.sleep(0.5)
    raise NotStartedError(f"no answer after {start_seconds:.0f} s:\n{tail(log)}")


def _end(process: subprocess.Popen) -> None:
    """End the whole group: schedulers and the detokenizer are its members."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    process.wait(30)
