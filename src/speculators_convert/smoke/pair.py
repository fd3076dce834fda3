"""The tiny trained pair that ships with the package, so that `smoke` without a reference tests a machine."""

from __future__ import annotations

from pathlib import Path

_PAIR = Path(__file__).parent / "pair"
DRAFT = _PAIR / "draft"
TARGET = _PAIR / "target"
PROMPTS = _PAIR / "prompts.jsonl"
ACCEPTANCE_LENGTH = 2.79
"""Measured in float32 on CPU over `PROMPTS` with 64 new tokens."""
