"""What a format offers, and a reader that turns wrong config values into problems instead of exceptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.findings import Problem
from speculators_convert.model import JsonValue
from speculators_convert.spec import DraftSpec, Settings


@dataclass(frozen=True, slots=True)
class Reading:
    """A format's reading of a checkpoint, and the config values that it could not use."""

    spec: DraftSpec
    problems: tuple[Problem, ...] = ()


class Format(Protocol):
    """One packaging."""

    name: str
    title: str
    order: int

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """Why this checkpoint is of this format; empty when it is not."""

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form."""


@dataclass
class ConfigReader:
    """Typed reads from one JSON object of the config. A value of a wrong type or range becomes a problem and reads as None."""

    table: Mapping[str, JsonValue]
    pointer: str = ""
    file: str = "config.json"
    problems: list[Problem] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    """The file's own spelling of a key, where it is another."""

    def sub(self, key: str) -> ConfigReader:
        """A reader for a nested object; empty when the key is absent or null."""
        value = self.table.get(key)
        if value is not None and not isinstance(value, dict):
            self.reject(key, value, "an object")
        return ConfigReader(value if isinstance(value, dict) else {}, f"{self.pointer}/{key}", self.file, self.problems)

    def integer(self, key: str, *, minimum: int | None = None, maximum: int | None = None) -> int | None:
        """An integer, not a bool; at least `minimum` and at most `maximum`."""
        value = self.table.get(key)
        if value is None:
            return None
        low, high = -(1 << 63) if minimum is None else minimum, (1 << 63) - 1 if maximum is None else maximum
        if type(value) is not int or not low <= value <= high:
            self.reject(key, value, "an integer" + ("" if minimum is None else f" of at least {minimum}") + ("" if maximum is None else f" and at most {maximum}"))
            return None
        return value

    def number(self, key: str) -> float | None:
        """A finite positive number."""
        value = self.table.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value < math.inf or value > 1e300:
            self.reject(key, value, "a positive number")
            return None
        return float(value)

    def boolean(self, key: str) -> bool | None:
        """A bool."""
        value = self.table.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.reject(key, value, "true or false")
        return None

    def string(self, key: str) -> str | None:
        """A string that is not empty."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value or len(value) > 4096:
            self.reject(key, value, "a string")
            return None
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        value = self.table.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.reject(key, value, "a list of strings")
            return ()
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...] | None:
        """A list of integers that is not empty."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(type(item) is int and abs(item) < 1 << 31 for item in value):
            self.reject(key, value, "a list of integers")
            return None
        return tuple(value)

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        """A string of a fixed set."""
        value = self.string(key)
        if value is not None and value not in allowed:
            self.reject(key, value, "one of " + ", ".join(allowed))
            return None
        return value

    def at(self, key: str) -> str:
        """File and JSON pointer of a key, for evidence."""
        return f"{self.file}#{self.pointer}/{self.names.get(key, key)}"

    def reject(self, key: str, value: JsonValue, expected: str) -> None:
        """Record that the value of `key` cannot be used."""
        shown, key = repr(value), self.names.get(key, key)
        problem = Problem(
            f"{key} must be {expected}",
            subject=key,
            measured=shown if len(shown) <= 120 else shown[:117] + "...",
            expected=expected,
            file=self.file,
            pointer=f"{self.pointer}/{key}",
        )
        if problem not in self.problems:  # a key may be read more than once
            self.problems.append(problem)
