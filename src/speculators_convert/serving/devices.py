"""GPUs of this machine, as the driver's own tool tells them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_FIELDS = ("index", "name", "driver_version", "compute_cap", "memory.total", "memory.free", "uuid")
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
    """Devices that nvidia-smi lists and CUDA_VISIBLE_DEVICES leaves; none where it is not installed or fails."""
    rows, visible = _asked("gpu", _FIELDS), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        rows = [row for name in filter(None, map(str.strip, visible.split(","))) for row in rows if name == row[0] or row[-1].startswith(name)]
    return tuple(Gpu(int(row[0]), row[1], row[2], row[3].replace(".", ""), _bytes(row[4]), _bytes(row[5])) for row in rows)


def held_bytes(pids: Collection[int]) -> int | None:
    """Device memory that these processes hold, over all devices; None where the driver does not tell."""
    held = [row[1] for row in _asked("compute-apps", ("pid", "used_memory")) if row[0].isdecimal() and int(row[0]) in pids]
    return sum(map(int, held)) * _MEBIBYTE if held and all(item.isdecimal() for item in held) else None


def _bytes(mebibytes: str) -> int:
    """0 where the driver does not say, as for parts of a device."""
    return int(mebibytes) * _MEBIBYTE if mebibytes.isdecimal() else 0


def _asked(what: str, fields: Sequence[str]) -> list[list[str]]:
    """Rows of a query; none where nvidia-smi is not installed or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run([program, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [row for row in rows if len(row) == len(fields)]
