"""Signals that end a run become an exception, so that what it started is ended on the way out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise `SystemExit` with status 128 + number; a second one is ignored while the first is handled."""
    before = {number: signal.getsignal(number) for number in _ENDING}

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        for other in _ENDING:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in _ENDING:
        if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:  # under nohup it stays ignored
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
