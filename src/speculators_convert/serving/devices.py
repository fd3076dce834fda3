"""GPUs of this machine, as the driver's own tool tells them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_FIELDS = ("index", "name", "driver_version", "compute_cap", "memory.total", "memory.free")
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `capability` is that of CUDA without the point: 90, 100, 120."""

    index: int
    name: str
    driver: str
    capability: str
    total_bytes: int
    free_bytes: int


def gpus() -> tuple[Gpu, ...]:
    """Devices that nvidia-smi lists; none where it is not installed or fails."""
    rows = _asked("gpu", _FIELDS)
    return tuple(Gpu(int(row[0]), row[1], row[2], row[3].replace(".", ""), int(row[4]) * _MEBIBYTE, int(row[5]) * _MEBIBYTE) for row in rows)


def held_bytes(pids: Collection[int]) -> int | None:
    """Device memory that these processes hold, over all devices; None where the driver does not tell."""
    held = [row[1] for row in _asked("compute-apps", ("pid", "used_memory")) if row[0].isdecimal() and int(row[0]) in pids]
    return sum(map(int, held)) * _MEBIBYTE if held and all(item.isdecimal() for item in held) else None


def _asked(what: str, fields: Sequence[str]) -> list[list[str]]:
    """Rows of a query; none where nvidia-smi is not installed or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run([program, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    if done.returncode != 0:
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [row for row in rows if len(row) == len(fields)]
