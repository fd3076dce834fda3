"""What an engine offers to a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from speculators_convert.results.bench import RequestRow, Step
from speculators_convert.workloads.base import Request


class Server(Protocol):
    """A fresh server, or a fresh process that stands for one."""

    @property
    def command(self) -> tuple[str, ...]:
        """The words it was started with."""

    @property
    def variables(self) -> dict[str, str]:
        """Variables that were set for it beside the inherited ones."""

    @property
    def start_seconds(self) -> float:
        """From its start to its first answer."""

    def warm_up(self, requests: Sequence[Request], concurrency: int) -> None:
        """Requests that nobody measures, and an empty cache afterwards."""

    def measure(self, requests: Sequence[Request], concurrency: int) -> list[RequestRow]:
        """One row for each request, `concurrency` in flight."""


class Engine(Protocol):
    """Starts servers."""

    def start(self, step: Step, log: Path) -> AbstractContextManager[Server]:
        """The server of `step`, ended on every way out; its output goes to `log`."""

    def end(self) -> None:
        """End all servers that other threads wait for."""
