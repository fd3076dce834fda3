"""The tables of one config that may state the same fact: each spelling is kept, the first that says anything decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from speculators_convert.formats.base import ConfigReader

_T = TypeVar("_T")
Candidate = tuple[_T | None, str]
"""A value that a place states (None when it does not) and where it stands."""


@dataclass(frozen=True, slots=True)
class Places:
    """Tables in the order in which they decide."""

    readers: tuple[ConfigReader, ...]

    def integers(self, *keys: str, minimum: int = 1) -> list[Candidate[int]]:
        """What each table says under any of `keys`."""
        return self._each(keys, lambda reader, key: reader.integer(key, minimum=minimum))

    def booleans(self, *keys: str) -> list[Candidate[bool]]:
        """What each table says under any of `keys`."""
        return self._each(keys, ConfigReader.boolean)

    def choices(self, key: str, allowed: tuple[str, ...]) -> list[Candidate[str]]:
        """What each table says, when it is one of `allowed`."""
        return self._each((key,), lambda reader, name: reader.choice(name, allowed))

    def lists(self, *keys: str, shift: int = 0) -> list[Candidate[tuple[int, ...]]]:
        """Integer lists, each item plus `shift`; the shift is part of the evidence."""
        how = f" plus {shift}" if shift > 0 else f" minus {-shift}" if shift < 0 else ""
        found = self._each(keys, ConfigReader.integers)
        return [(None if value is None else tuple(item + shift for item in value), source + how) for value, source in found]

    def strings(self, key: str) -> list[Candidate[str]]:
        """What each table says."""
        return self._each((key,), ConfigReader.string)

    def _each(self, keys: tuple[str, ...], read: Callable[[ConfigReader, str], _T | None]) -> list[Candidate[_T]]:
        return [(read(reader, key), reader.at(key)) for key in keys for reader in self.readers]


def native_places(config: ConfigReader) -> Places:
    """Top level, then the two nested tables that native packagings use."""
    return Places((config, config.sub("dspark_config"), config.sub("dflash_config")))
