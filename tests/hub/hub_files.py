"""What the repositories of the test Hub hold."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAFT = ROOT / "fixtures" / "trained" / "tiny-bonus-reduced-vanilla"
LARGE_BYTES = 64 << 20
MARK = b"0123456789abcdef"
