"""Versions of what is installed here."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def installed(names: Iterable[str]) -> dict[str, str]:
    """Distribution to version, of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
