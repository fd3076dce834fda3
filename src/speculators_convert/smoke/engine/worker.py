"""One rank of a tensor-parallel run, started by torch's elastic launcher: `python -m torch.distributed.run ... -m <this> FOLDER`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from speculators_convert.errors import SpecConvertError, UsageError
from speculators_convert.model import packed, unpacked
from speculators_convert.rewrite.ranks import assembled
from speculators_convert.smoke.engine import session
from speculators_convert.smoke.launch import ANSWER, FAILURE, PROGRESS, REQUEST, Failure, Request
from speculators_convert.sources import open_source

COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def main(folder: Path) -> int:
    """Run this rank; rank 0 writes the answer, a rank that fails writes why."""
    index, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    request = unpacked(Request, (folder / REQUEST).read_bytes())
    threading.Thread(target=_follow, args=(request.owner,), daemon=True).start()
    device = "cpu" if request.config.device == "cpu" else f"cuda:{index}"
    try:
        if device != "cpu":
            torch.cuda.set_device(device)
        dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=COLLECTIVE_TIMEOUT)
        rank = session.Rank(index, world, device)
        progress = _reporter(folder / PROGRESS) if index == 0 else _silent
        answer = session.run(request.config, request.spec, assembled(open_source(request.reference)), Path(request.target), request.prompts, progress, rank)
    except SpecConvertError as error:
        _write(folder / FAILURE.format(rank=index), packed(_failure(error)).decode())
        os._exit(1)  # the others may be inside a collective that this rank will not join: the launcher ends them
    if index == 0:
        _write(folder / ANSWER, packed(answer).decode())
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _failure(error: SpecConvertError) -> Failure:
    measured, expected = (None if value is None else str(value) for value in (error.measured, error.expected))
    return Failure(usage=isinstance(error, UsageError), what=error.what, where=error.where, measured=measured, expected=expected, hint=error.hint)


def _reporter(file: Path) -> Callable[[int, int, str], None]:
    return lambda done, total, what: _write(file, f"{done} {total} {what}")


def _silent(_done: int, _total: int, _what: str) -> None:
    """Ranks other than the first show nothing."""


def _write(file: Path, text: str) -> None:
    """Whole or not at all: the owner may read at any time."""
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _follow(owner: int) -> None:
    """End this process when the launcher or the owner is gone."""
    launcher = os.getppid()
    while os.getppid() == launcher and _alive(owner):
        time.sleep(1)
    os._exit(1)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
