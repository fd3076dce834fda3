"""Ports for servers that bind them a minute later."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from speculators_convert.serving import ports


def test_ports_differ_and_no_outgoing_connection_can_get_them() -> None:
    start = ports._ephemeral_start()
    found = [port for _ in range(50) for port in ports.free_ports(3)]
    assert start > ports.LOWEST, "this system says where its own range begins"
    assert all(ports.LOWEST <= port < start for port in found)
    assert len(set(found[:3])) == 3


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two ports below the range, one of them taken: always the other."""
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    with socket.socket() as held:
        held.bind(("", ports.free_ports(1)[0]))
        taken = held.getsockname()[1]
        monkeypatch.setattr(ports, "LOWEST", taken)
        (tmp_path / "range").write_text(f"{taken + 2}\t60999\n")
        assert {ports.free_ports(1)[0] for _ in range(20)} == {taken + 1}


@pytest.mark.parametrize("text", [None, "", "x y", "1024 60999"])
def test_without_a_range_the_system_chooses(text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    if text is not None:
        (tmp_path / "range").write_text(text)
    assert all(0 < port < 65536 for port in ports.free_ports(2))
