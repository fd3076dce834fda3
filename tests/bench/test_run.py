"""The order of things in a run: started together, warmed up, measured one after the other, kept even when a later server fails."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench_rows import TOKENS, plan_of, row
from speculators_convert.bench import run, store
from speculators_convert.errors import SmokeError, WriteError
from speculators_convert.results.bench import BenchPlan, BenchReport, RequestRow, Step
from speculators_convert.workloads.base import Request, Workload

WORKLOAD = Workload("w", (Request("a", "", (1, 2)), Request("b", "", (3,))))


class Notebook:
    """An engine that writes down what it is asked; `fails` is the step whose measurement fails, or whose start does."""

    def __init__(self, *, fails: int | None = None, never_starts: int | None = None, short: int | None = None) -> None:
        self.notes: list[str] = []
        self.up: set[int] = set()
        self.fails, self.never_starts, self.short = fails, never_starts, short
        self.ended = False

    @contextmanager
    def start(self, step: Step, log: Path) -> Iterator[Server]:
        log.write_text(f"server {step.index}\n")
        if step.index == self.never_starts:
            raise SmokeError("did not start", where=str(step.index))
        self.up.add(step.index)
        try:
            yield Server(self, step)
        finally:
            self.up.remove(step.index)
            with log.open("a") as file:
                file.write("ended\n")

    def end(self) -> None:
        self.ended = True


class Server:
    """One that counts nothing and answers at once."""

    command, variables, start_seconds = ("serve",), {"A": "1"}, 0.5

    def __init__(self, engine: Notebook, step: Step) -> None:
        self._engine, self._step = engine, step

    def warm_up(self, requests: Sequence[Request], concurrency: int) -> None:
        self._engine.notes.append(f"{self._step.index} warm {concurrency} {''.join(item.name for item in requests)} beside {len(self._engine.up)}")

    def measure(self, requests: Sequence[Request], concurrency: int) -> list[RequestRow]:
        if self._step.index == self._engine.fails:
            raise SmokeError("failed", where=str(self._step.index))
        self._engine.notes.append(f"{self._step.index} measure {concurrency}")
        drafted = {"verify_steps": 4, "accepted": 3, "drafted": 12} if self._step.arm == "drafted" else {}
        tokens = TOKENS - 1 if self._step.index == self._engine.short else TOKENS
        return [row(request=item.name, concurrency=concurrency, output_tokens=tokens, **drafted) for item in requests]


def plan(**changes: object) -> BenchPlan:
    return plan_of(requests=2, concurrency=(1, 3), digest=WORKLOAD.digest).model_copy(update=changes)


def kept(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "servers").glob("0*"))


def go(engine: Notebook, out: Path, decided: BenchPlan | None = None) -> BenchReport | run.Unfinished:
    return run.run(decided or plan(), WORKLOAD, engine, out, None, lambda *_: None)


def test_each_phase_is_warmed_up_at_its_own_concurrency(tmp_path: Path) -> None:
    engine = Notebook()
    go(engine, tmp_path / "out")
    assert engine.notes[:4] == ["0 warm 1 a beside 1", "0 measure 1", "0 warm 3 aba beside 1", "0 measure 3"]
    assert [note[0] for note in engine.notes] == list("0000111122223333")
    assert not engine.up


def test_servers_of_a_group_are_up_together_and_asked_in_turn(tmp_path: Path) -> None:
    engine = Notebook()
    go(engine, tmp_path / "out", plan(side_by_side=3))
    assert [note.rpartition(" ")[2] for note in engine.notes if "warm" in note] == ["3"] * 6 + ["1"] * 2
    servers = store.finished(tmp_path / "out", plan(side_by_side=3))
    assert [servers[index].run.group for index in range(4)] == [(0, 1, 2), (0, 1, 2), (0, 1, 2), (3,)]


def test_logs_are_whole_when_they_are_digested(tmp_path: Path) -> None:
    go(Notebook(), tmp_path / "out")
    assert {path.read_text() for path in (tmp_path / "out/servers").glob("*/log")} == {f"server {index}\nended\n" for index in range(4)}
    store.analyze(tmp_path / "out")


@pytest.mark.parametrize("trouble", [{"fails": 1}, {"short": 1}])
def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path, trouble: dict[str, int]) -> None:
    with pytest.raises(SmokeError):
        go(Notebook(**trouble), tmp_path / "out", plan(side_by_side=2))
    assert kept(tmp_path / "out") == ["000-plain"]
    again = Notebook()
    assert isinstance(go(again, tmp_path / "out", plan(side_by_side=2)), BenchReport)
    assert [note for note in again.notes if note.startswith("0")] == []


def test_a_server_that_does_not_start_ends_the_others(tmp_path: Path) -> None:
    engine = Notebook(never_starts=1)
    with pytest.raises(SmokeError, match="did not start"):
        go(engine, tmp_path / "out", plan(side_by_side=4))
    assert engine.ended
    assert not engine.up
    assert engine.notes == []
    assert kept(tmp_path / "out") == []


def test_the_budget_leaves_the_rest_to_the_next_call(tmp_path: Path) -> None:
    found = run.run(plan(), WORKLOAD, Notebook(), tmp_path / "out", 1e-9, lambda *_: None)
    assert found == run.Unfinished(1, 4)
    assert kept(tmp_path / "out") == ["000-plain"]


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(WriteError, match="another run"):
        go(Notebook(), tmp_path / "out")
    os.close(other)
