"""Device memory before and after servers."""

import time

from speculators_convert.serving import devices

SLACK_BYTES = 64 << 20


def used() -> list[int]:
    """Bytes in use on each GPU."""
    return [gpu.total_bytes - gpu.free_bytes for gpu in devices.gpus()]


def settled(before: list[int], seconds: float) -> list[int]:
    """Memory in use when the driver has taken back what ended processes held, or after `seconds`."""
    stop = time.monotonic() + seconds
    while any(now > then + SLACK_BYTES for now, then in zip(used(), before, strict=True)) and time.monotonic() < stop:
        time.sleep(0.5)
    return used()
