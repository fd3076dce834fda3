"""Text form of named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_LONG = 60
"""Characters from which a value is a sentence."""


def value_lines(values: Mapping[str, str]) -> Iterator[str]:
    """The short ones on one line, then each sentence on a line of its own, so that none is lost among versions."""
    yield "  ".join(f"{name} {value}" for name, value in values.items() if value and len(value) < _LONG)
    yield from (f"{name}: {value}" for name, value in values.items() if len(value) >= _LONG)
