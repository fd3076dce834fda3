"""These files run in the SGLang environment, in a process of their own (see ../test_inside.py)."""

import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from sglang_harness.environment import LIBRARY


@pytest.fixture(scope="session")
def world() -> None:
    """Process groups of one rank."""
    from sglang_harness.draft import start_world  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_world(LIBRARY / "target", port=port)
