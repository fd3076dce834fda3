"""A tensor-parallel run: one worker per rank under torch's elastic launcher, and their answer as JSON."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from speculators_convert.errors import SmokeError, UsageError
from speculators_convert.model import Model, packed, unpacked
from speculators_convert.results.smoke import EngineRun, Prompt, SmokeConfig
from speculators_convert.smoke.compare import Progress
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec

WORKER = "speculators_convert.smoke.engine.worker"
REQUEST, ANSWER, FAILURE, PROGRESS, LOG = "request.json", "answer.json", "failure-{rank}.json", "progress", "log"
POLL_SECONDS, GRACE_SECONDS, TAIL_LINES = 0.1, 20.0, 40


class Request(Model):
    """What each worker needs; `owner` is the process that waits for the answer."""

    config: SmokeConfig
    spec: DraftSpec
    reference: str
    target: str
    prompts: tuple[Prompt, ...]
    owner: int


class Failure(Model):
    """An error of a worker, with the fields of `SpecConvertError`."""

    usage: bool
    what: str
    where: str
    measured: str | None
    expected: str | None
    hint: str


def run(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress) -> EngineRun:
    """The answer of the ranks. `SmokeError` when one fails or time runs out; no process is left behind."""
    _demand_devices(config)
    request = Request(config=config, spec=spec, reference=_reference(source), target=str(target), prompts=tuple(prompts), owner=os.getpid())
    with tempfile.TemporaryDirectory(prefix="spec-convert-tp-") as name:
        folder = Path(name)
        (folder / REQUEST).write_bytes(packed(request))
        status = _launch(folder, config, progress)
        answer, log = folder / ANSWER, _tail(folder / LOG)
        for file in sorted(folder.glob(FAILURE.format(rank="*"))):
            raise _error(file)
        if status != 0 or not answer.is_file():
            raise SmokeError(f"the tensor-parallel run ended without an answer:\n{log}", where=f"--tp {config.tp}", measured=f"exit status {status}", expected="0")
        try:
            return unpacked(EngineRun, answer.read_bytes())
        except ValueError as error:
            raise SmokeError(f"the answer of the ranks cannot be read ({str(error)[:200]})", where=f"--tp {config.tp}") from error


def _launch(folder: Path, config: SmokeConfig, progress: Progress) -> int:
    """Run the launcher to its end and return its status."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--max-restarts", "0", "--nproc-per-node", str(config.tp)]
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen([*command, "-m", WORKER, str(folder)], env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
        with _ended(process):
            deadline = time.monotonic() + config.timeout_seconds
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise SmokeError(
                        f"the tensor-parallel run took too long:\n{_tail(folder / LOG)}",
                        where=f"--tp {config.tp}",
                        measured=f"more than {config.timeout_seconds:g} s",
                        expected="an answer",
                        hint="raise --timeout, or use fewer prompts",
                    )
                _show(folder / PROGRESS, progress)
                time.sleep(POLL_SECONDS)
        return process.returncode


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The launcher is ended on each way out; it ends its workers, and each worker ends itself when the owner is gone."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment() -> dict[str, str]:
    """This process's environment; workers find the package where this process found it, and talk over the loopback."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    names = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {"OMP_NUM_THREADS": "1", **names, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _demand_devices(config: SmokeConfig) -> None:
    if config.device == "cpu":
        return
    import torch  # noqa: PLC0415

    if config.tp > torch.cuda.device_count():
        count = torch.cuda.device_count()
        hint = "run with --device cpu, or a smaller --tp"
        raise SmokeError("there are fewer CUDA devices than ranks", where="--tp", measured=f"{count} devices", expected=f"{config.tp}", hint=hint)


def _reference(source: Source) -> str:
    """How the workers open the draft."""
    if source.id.kind not in ("folder", "hub"):
        raise SmokeError("the ranks cannot open this draft", where=source.id.name, measured=source.id.kind, expected="a folder or a Hub reference")
    return f"hf:{source.id.name}@{source.id.revision}" if source.id.kind == "hub" else source.id.name


def _error(file: Path) -> SmokeError | UsageError:
    failure = unpacked(Failure, file.read_bytes())
    kind = UsageError if failure.usage else SmokeError
    return kind(failure.what, where=failure.where, measured=failure.measured, expected=failure.expected, hint=failure.hint)


def _show(file: Path, progress: Progress) -> None:
    """Pass on what rank 0 last said."""
    try:
        done, total, what = file.read_text(encoding="utf-8").split(" ", 2)
    except (OSError, ValueError):
        return  # nothing said yet
    progress(int(done), int(total), what)


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
