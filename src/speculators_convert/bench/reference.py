"""The embedded engine as the engine of a run: a fresh process stands for a server, one request at a time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from speculators_convert.errors import SmokeError, UsageError
from speculators_convert.model import Model, packed, unpacked
from speculators_convert.results.bench import PLAIN, BenchOptions, BenchPlan, RequestRow, Step
from speculators_convert.spec import DraftSpec
from speculators_convert.workloads.base import Request

WORKER = "speculators_convert.bench.reference_worker"
END_SECONDS = 20


class Job(Model):
    """First line to a worker: what it loads. `drafted` false is the target alone."""

    reference: str
    spec: DraftSpec
    target: str
    drafted: bool
    mode: str
    dtype: str
    device: str
    output_tokens: int
    longest: int


class Ask(Model):
    """A further line: requests to run, by name and token ids."""

    requests: tuple[tuple[str, tuple[int, ...]], ...]


class Rows(Model):
    """A worker's answer to one line; to the first line it has no rows."""

    rows: tuple[RequestRow, ...]


def settings(options: BenchOptions) -> dict[str, str]:
    """What the options leave open, decided from this machine. `SmokeError` without torch; `UsageError` for what this engine has not."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise SmokeError("the reference engine needs " + " and ".join(missing), hint='pip install "speculators-convert[engine]"')
    if options.concurrency != (1,):
        raise UsageError("the reference engine runs one request at a time", where="--concurrency", measured=", ".join(map(str, options.concurrency)), expected="1")
    if options.tp != 1 or options.server_words or options.attention_backend or options.draft_attention_backend or options.stock:
        where = "--tp, --server-arg, --attention-backend, --draft-attention-backend, --stock"
        raise UsageError("the reference engine is measured at one rank and has no server", where=where, expected="none of them")
    import torch  # noqa: PLC0415

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return {"device": device, "mode": options.mode or "eager", "dtype": options.dtype or ("float32" if device == "cpu" else "bfloat16")}


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that has loaded its models and waits for requests."""

    process: subprocess.Popen[bytes]
    log: Path
    command: tuple[str, ...]
    start_seconds: float

    @property
    def variables(self) -> dict[str, str]:
        """Variables that were set for it beside the inherited ones."""
        return {}

    def warm_up(self, requests: Sequence[Request], concurrency: int) -> None:
        """Requests that nobody measures; the engine keeps no cache between requests."""
        self.measure(requests, concurrency)

    def measure(self, requests: Sequence[Request], concurrency: int) -> list[RequestRow]:
        """One row for each request."""
        if concurrency != 1:
            raise SmokeError("the reference engine runs one request at a time", where="concurrency", measured=concurrency, expected="1")
        answer = say(self.process, Ask(requests=tuple((item.name, item.input_ids) for item in requests)), self.log)
        return list(answer.rows)


class Reference:
    """Processes of a plan. `drafts` has reference and spec of each arm's draft; the arm without one loads the target for the first of them."""

    def __init__(self, plan: BenchPlan, target: Path, drafts: dict[str, tuple[str, DraftSpec]], longest: int) -> None:
        self._plan, self._target, self._drafts, self._longest = plan, target, drafts, longest

    @contextmanager
    def start(self, step: Step, log: Path) -> Iterator[Worker]:
        """The process of `step`, ended on every way out; what it says beside answers goes to `log`."""
        reference, spec = self._drafts.get(step.arm) or next(iter(self._drafts.values()))
        chosen = {name: self._plan.settings[name] for name in ("mode", "dtype", "device")}
        job = Job(
            reference=reference, spec=spec, target=str(self._target), drafted=step.arm != PLAIN,
            output_tokens=self._plan.output_tokens, longest=self._longest, **chosen,
        )  # fmt: skip
        command, began = (sys.executable, "-m", WORKER), time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)  # noqa: S603 (our own worker)
        try:
            say(process, job, log)
            yield Worker(process, log, command, time.monotonic() - began)
        finally:
            _end(process)

    def end(self) -> None:
        """A worker ends by itself when its owner is gone: its input closes."""


OWN_ERROR = "error E"


def say(process: subprocess.Popen[bytes], line: Model, log: Path) -> Rows:
    """Write one line, read the answer. `SmokeError` with the end of the log when there is none."""
    if process.stdin is None or process.stdout is None:
        raise SmokeError("the worker has no pipes", where=WORKER)
    try:
        process.stdin.write(packed(line) + b"\n")
        process.stdin.flush()
        return unpacked(Rows, process.stdout.readline())
    except (BrokenPipeError, ValueError) as error:
        said = [text.strip() for text in log.read_text(encoding="utf-8", errors="replace").splitlines() if text.strip()]
        raise SmokeError("the worker ended without an answer", where=WORKER, measured=_telling(said), expected="rows", hint=f"full log: {log}") from error


def _telling(said: list[str]) -> str:
    """The line of the log that says why: our own error's first, else the last, which ends a traceback."""
    own = [line for line in said if line.startswith(OWN_ERROR)]
    return own[-1] if own else said[-1] if said else "an empty log"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(END_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
