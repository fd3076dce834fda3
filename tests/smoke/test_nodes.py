"""What machines say to each other about the server that runs, over real sockets, without a server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import Nodes
from speculators_convert.serving.ports import free_ports
from speculators_convert.smoke.sglang import nodes


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr(nodes, "LINGER_SECONDS", 1.5)
    monkeypatch.setattr(nodes, "LOST_SECONDS", 1.0)
    return Nodes(count=2, rank=1, address=f"127.0.0.1:{free_ports(1)[0]}")


def test_a_machine_that_waits_ends_when_machine_0_says_done(place: Nodes, tmp_path: Path) -> None:
    found: list[list[str]] = []
    waiting = threading.Thread(target=lambda: found.append(nodes.follow(place, [], tmp_path, 20)))
    with nodes.leading(place):
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        nodes_said = nodes._asked(place, 5)
        assert nodes_said == nodes.NOBODY
    waiting.join(10)
    assert found == [[]]


def test_a_machine_0_that_is_not_there_is_an_error(place: Nodes, tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match="does not answer"):
        nodes.follow(place, [], tmp_path, 0.6)


def test_a_machine_0_that_was_there_and_is_gone_has_ended(place: Nodes) -> None:
    assert nodes._asked(place, 0.1, lost=nodes.DONE) == nodes.DONE


def test_an_address_that_is_taken_is_an_error(place: Nodes) -> None:
    with nodes.leading(place), pytest.raises(SmokeError, match="cannot listen"), nodes.leading(place):
        pass


@pytest.mark.parametrize("address", ["host", "host:", ":1", "a b:1", "host:0", "host:99999", "[::1]:5", "host:x"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SmokeError, match="not an address"):
        nodes.rendezvous(Nodes(count=2, rank=0, address=address), 0)
