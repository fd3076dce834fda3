"""Free ports of this machine."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Ports that nothing uses now, all different: they are held together while they are looked for."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
