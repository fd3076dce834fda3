"""What nvidia-smi prints, read through a program of that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculators_convert.serving import devices

SCRIPT = """#!/bin/sh
case "$1" in
  --query-gpu=*) echo "0, NVIDIA H200, 580.159.04, 9.0, 143771, 143156, GPU-aa"; echo "1, NVIDIA H200, 580.159.04, 9.0, 143771, 100, GPU-bb"
    echo "2, NVIDIA H200, 580.159.04, 9.0, [N/A], [N/A], GPU-cc" ;;
  --query-compute-apps=*) echo "10, 500"; echo "11, 1500"; echo "12, {third}"; echo "10, 24" ;;
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program = tmp_path / "nvidia-smi"
    program.write_text(SCRIPT.format(third="700"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return program


@pytest.mark.parametrize(("visible", "indices"), [(None, [0, 1, 2]), ("1", [1]), ("2, 0", [2, 0]), ("GPU-bb", [1]), ("", [])])
@pytest.mark.usefixtures("nvidia_smi")
def test_only_visible_gpus_count(monkeypatch: pytest.MonkeyPatch, visible: str | None, indices: list[int]) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in devices.gpus()] == indices


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus() -> None:
    first, second, third = devices.gpus()
    assert (third.total_bytes, third.free_bytes) == (0, 0)
    assert (first.index, first.name, first.driver, first.capability) == (0, "NVIDIA H200", "580.159.04", "90")
    assert (first.total_bytes, second.free_bytes) == (143771 * 1024**2, 100 * 1024**2)


@pytest.mark.usefixtures("nvidia_smi")
def test_memory_of_some_processes_over_all_devices() -> None:
    assert devices.held_bytes([10, 12]) == (500 + 24 + 700) * 1024**2
    assert devices.held_bytes([99]) is None


def test_memory_that_the_driver_does_not_tell(nvidia_smi: Path) -> None:
    nvidia_smi.write_text(SCRIPT.format(third="[N/A]"))
    assert devices.held_bytes([12]) is None
    assert devices.held_bytes([11]) == 1500 * 1024**2


def test_without_the_program_there_are_no_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.gpus() == ()
    assert devices.held_bytes([1]) is None
