"""A file or pipe that the user names, read whole unless it is larger than can be meant: a device never ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Its bytes; `OSError`, as for any other file that cannot be read, when there are more than `limit_bytes`."""
    with path.open("rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: more than {limit_bytes} bytes", str(path))
    return data
