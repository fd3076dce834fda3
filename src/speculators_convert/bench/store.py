"""A run's folder: plan, requests, one folder for each finished server, manifest, summary. Digests bind them.

    plan.json  workload.jsonl  servers/000-drafted/{rows.jsonl,log,server.json}  manifest.json  summary.json

A server's folder appears under its name when it is finished, so that a run resumes behind the last one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from speculators_convert.bench import analysis, rows
from speculators_convert.bench.plan import order
from speculators_convert.errors import RefusedError, SmokeError, SourceError, UsageError, WriteError
from speculators_convert.model import JsonValue, Model, canonical_json, pretty_json, sha256_hex
from speculators_convert.results.bench import PLAIN, BenchManifest, BenchPlan, BenchReport, RequestRow, ServerEntry, ServerRun, Step
from speculators_convert.workloads.base import Workload

PLAN, WORKLOAD, MANIFEST, SUMMARY, SERVERS = "plan.json", "workload.jsonl", "manifest.json", "summary.json", "servers"
ROWS, LOG, RECORD = "rows.jsonl", "log", "server.json"
_M = TypeVar("_M", bound=Model)


@dataclass(frozen=True, slots=True)
class Finished:
    """One server that left all its files, and their digests."""

    folder: str
    run: ServerRun
    rows: tuple[RequestRow, ...]
    record_sha256: str


def open_folder(folder: Path, plan: BenchPlan, workload: Workload) -> None:
    """Write plan and requests, or find the same ones there: `UsageError` when the folder holds another run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / PLAN).exists():
            if any(item.name not in (WORKLOAD, f".{WORKLOAD}.tmp", f".{PLAN}.tmp") for item in folder.iterdir()):
                raise UsageError("the folder is not empty and holds no run", where=str(folder), hint="pass a new folder")
            _write(folder / WORKLOAD, b"".join(workload.lines()))
            _write(folder / PLAN, _bytes(plan))
    except OSError as error:
        raise WriteError(f"cannot write the run's folder ({error.strerror})", where=str(folder), hint="pass a folder that you may write to") from error
    there, asked = _read(folder / PLAN, BenchPlan), _parse(_bytes(plan), folder / PLAN, BenchPlan)
    if there != asked:
        name, theirs, ours = _difference(there.model_dump(mode="json"), asked.model_dump(mode="json"))
        hint = "pass another --out, or the options of the run that is there"
        raise UsageError(f"the folder holds a run under another plan: {name} differs", where=str(folder / PLAN), measured=theirs, expected=ours, hint=hint)
    _demand(sha256_hex(_data(folder / WORKLOAD)), plan.workload.digest, folder / WORKLOAD)


def _difference(theirs: dict[str, JsonValue], ours: dict[str, JsonValue], prefix: str = "") -> tuple[str, str, str]:
    """Name and values of the first key that differs, inside nested objects too."""
    name = next(name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name))
    left, right = theirs.get(name), ours.get(name)
    if isinstance(left, dict) and isinstance(right, dict):
        return _difference(left, right, f"{prefix}{name}.")
    return f"{prefix}{name}", str(left)[:200], str(right)[:200]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """`WriteError` while another run writes into the folder; the kernel drops the lock with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise WriteError("another run writes into this folder", where=str(folder), hint="wait for it, or pass another --out") from error
    finally:
        os.close(descriptor)


def part(folder: Path, step: Step) -> Path:
    """A new empty folder in which the server of `step` runs."""
    path = folder / SERVERS / f".{_name(step)}.part"
    with _writing(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    return path


def keep(folder: Path, working: Path, run: ServerRun, measured: Sequence[RequestRow]) -> None:
    """The server is finished: its rows and its record, then its name."""
    data = rows_bytes(measured)
    _write(working / ROWS, data)
    record = run.model_copy(update={"rows_sha256": sha256_hex(data), "log_sha256": sha256_hex((working / LOG).read_bytes())})
    _write(working / RECORD, _bytes(record))
    with _writing(folder / SERVERS / _name(run.step)):
        working.rename(folder / SERVERS / _name(run.step))


def rows_bytes(measured: Sequence[RequestRow]) -> bytes:
    """One row a line."""
    return b"".join(canonical_json(row.model_dump(mode="json")) + b"\n" for row in measured)


def finished(folder: Path, plan: BenchPlan) -> dict[int, Finished]:
    """The servers that are finished, by step. `RefusedError` when a file is not what its record says."""
    found = {}
    for step in plan.steps:
        path = folder / SERVERS / _name(step)
        if path.is_dir():
            found[step.index] = _server(path, f"{SERVERS}/{_name(step)}", plan, step)
    return found


def _server(path: Path, name: str, plan: BenchPlan, step: Step) -> Finished:
    record = _data(path / RECORD)
    run = _parse(record, path / RECORD, ServerRun)
    if run.step != step:
        raise RefusedError("the server's record is of another step", where=str(path / RECORD), measured=str(run.step), expected=str(step))
    data = _data(path / ROWS)
    _demand(sha256_hex(data), run.rows_sha256, path / ROWS)
    _demand(sha256_hex(_data(path / LOG)), run.log_sha256, path / LOG)
    measured = tuple(_parse(line, path / ROWS, RequestRow) for line in data.splitlines())
    try:
        rows.demand(plan, step, measured)
    except SmokeError as error:
        raise RefusedError(f"rows that no finished server leaves: {error.what}", where=str(path / ROWS), hint="run it again") from error
    return Finished(name, run, measured, sha256_hex(record))


def seal(folder: Path, plan: BenchPlan) -> BenchReport:
    """All servers are finished: summary and manifest."""
    servers = finished(folder, plan)
    report = _report(plan, servers)
    summary = _bytes(report)
    _write(folder / SUMMARY, summary)
    _write(folder / MANIFEST, _bytes(_manifest(folder, servers, sha256_hex(summary))))
    return report


def analyze(folder: Path) -> BenchReport:
    """The summary computed again from the raw rows. `RefusedError` when a digest does not hold or the stored summary is not it, bit for bit."""
    stated = _read(folder / MANIFEST, BenchManifest)
    plan = _read(folder / PLAN, BenchPlan)
    _demand(sha256_hex(_data(folder / PLAN)), stated.plan_sha256, folder / PLAN)
    _demand(sha256_hex(_data(folder / WORKLOAD)), stated.workload_sha256, folder / WORKLOAD)
    _demand(stated.workload_sha256, plan.workload.digest, folder / WORKLOAD)
    _demand_sound(plan, folder / PLAN)
    servers = finished(folder, plan)
    missing = [step.index for step in plan.steps if step.index not in servers]
    if missing:
        raise RefusedError("servers are missing", where=str(folder / SERVERS), measured=f"{len(servers)} of {len(plan.steps)}", expected="all of the plan")
    if len(stated.servers) != len(servers):
        raise RefusedError("the manifest does not name the plan's servers", where=str(folder / MANIFEST), measured=len(stated.servers), expected=len(servers))
    for entry, server in zip(stated.servers, servers.values(), strict=True):
        if entry != _entry(server):
            raise RefusedError("a server's digests are not the manifest's", where=server.folder, measured=str(_entry(server)), expected=str(entry))
    report = _report(plan, servers)
    summary = _data(folder / SUMMARY)
    _demand(sha256_hex(summary), stated.summary_sha256, folder / SUMMARY)
    if summary != _bytes(report):
        raise RefusedError("the summary is not what the raw rows give", where=str(folder / SUMMARY), hint="it was changed, or another release of this tool wrote it")
    return report


def _report(plan: BenchPlan, servers: dict[int, Finished]) -> BenchReport:
    return analysis.report(plan, {index: server.rows for index, server in servers.items()}, [server.run.rows_sha256 for server in servers.values()])


def _manifest(folder: Path, servers: dict[int, Finished], summary_sha256: str) -> BenchManifest:
    plan, workload = (sha256_hex(_data(folder / name)) for name in (PLAN, WORKLOAD))
    return BenchManifest(plan_sha256=plan, workload_sha256=workload, servers=tuple(_entry(server) for server in servers.values()), summary_sha256=summary_sha256)


def _entry(server: Finished) -> ServerEntry:
    return ServerEntry(folder=server.folder, record_sha256=server.record_sha256, rows_sha256=server.run.rows_sha256, log_sha256=server.run.log_sha256)


def _name(step: Step) -> str:
    return f"{step.index:03}-{step.arm}"


def _bytes(value: Model) -> bytes:
    return pretty_json(value.model_dump(mode="json")).encode()


def _demand(measured: str, expected: str, path: Path) -> None:
    if measured != expected:
        raise RefusedError(
            "the file is not the one that was recorded", where=str(path), measured=f"sha256:{measured}", expected=f"sha256:{expected}", hint="it was changed after the run"
        )


def _data(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise SourceError("not a regular file", where=str(path), expected="a file that bench wrote")
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read a file of the run ({error.strerror})", where=str(path), hint="is this the --out folder of a finished bench?") from error


def _read(path: Path, model: type[_M]) -> _M:
    return _parse(_data(path), path, model)


def _parse(data: bytes, path: Path, model: type[_M]) -> _M:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise RefusedError(f"not a file that bench wrote: {'.'.join(map(str, first['loc']))} {first['msg']}", where=str(path)) from error


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    with _writing(path):
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """`WriteError` for what the file system refuses; finished servers stay."""
    try:
        yield
    except OSError as error:
        hint = "free some space or repair the folder, and call again: finished servers are kept"
        raise WriteError(f"cannot write the run's folder ({error.strerror})", where=str(path), hint=hint) from error


def _demand_sound(plan: BenchPlan, path: Path) -> None:
    """`RefusedError` unless arms, steps and requests are those of a plan that `plan.make` can have made."""
    names = [arm.name for arm in plan.arms]
    sound = names[:1] == [PLAIN] and len(names) > 1 and plan.repeats >= 1 and plan.workload.requests >= 1 and len(plan.steps) == len(names) * plan.repeats
    if not sound or plan.steps != order(names, plan.repeats):
        expected = f"{plan.repeats} of each of {', '.join(names)}"
        raise RefusedError("arms and servers are not those of one plan", where=str(path), measured=f"{len(plan.steps)} servers", expected=expected)
