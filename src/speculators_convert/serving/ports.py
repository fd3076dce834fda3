"""Free ports of this machine."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

LOWEST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


def free_ports(count: int) -> list[int]:
    """Ports that nothing uses now, all different: they are held together while they are looked for.

    A server binds its ports a minute after they were chosen. Until then no outgoing connection gets them, since they lie below
    the range that the system takes those from; another process that chooses ports in the same way rarely meets the same ones.
    """
    with contextlib.ExitStack() as stack:
        return [_bound(stack.enter_context(socket.socket())) for _ in range(count)]


def _bound(held: socket.socket) -> int:
    """Bind `held` to a port below the system's own range, to any one where none of those is free."""
    below = _ephemeral_start()
    for _ in range(_ATTEMPTS if below > LOWEST else 0):
        with contextlib.suppress(OSError):
            held.bind(("", random.randrange(LOWEST, below)))  # noqa: S311
            break
    else:
        held.bind(("", 0))
    return int(held.getsockname()[1])


def _ephemeral_start() -> int:
    """First port that the system gives to outgoing connections; 0 where it does not say."""
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
