"""When a change is needed: what of SGLang a launch switches on, by its environment."""

from __future__ import annotations

import os


def always() -> bool:
    """Each Speculators draft needs it."""
    return True


def never() -> bool:
    """SGLang itself fails, before it serves, where the change is missing."""
    return False


def compact() -> bool:
    """Requests of one batch may verify different numbers of tokens, packed without gaps."""
    return os.environ.get("SGLANG_RAGGED_VERIFY_MODE") == "compact"


def simulated() -> bool:
    """Acceptance is drawn instead of measured, for benchmarks."""
    try:
        return float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", "0")) > 0
    except ValueError:
        return False
