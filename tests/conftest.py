"""Settings for all tests: fixed hypothesis profiles (`HYPOTHESIS_PROFILE=nightly` for the long run)."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_NEEDS_TORCH = re.compile(r"^(import|from) (torch|transformers|safetensors\.torch)\b", re.MULTILINE)


def pytest_report_header() -> str | None:
    """Say what is left out where only the core is installed."""
    return None if _HAS_TORCH else "torch is not installed: test files that import it, or transformers, are left out"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave such a file out."""
    if _HAS_TORCH or collection_path.suffix != ".py":
        return None
    return True if _NEEDS_TORCH.search(collection_path.read_text(encoding="utf-8")) else None
