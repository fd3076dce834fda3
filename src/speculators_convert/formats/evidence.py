"""Collects evidence for facts: every candidate is kept, the first that says anything decides."""

from __future__ import annotations

from typing import TypeVar

from speculators_convert.spec import Evidence

_T = TypeVar("_T")


class EvidenceLog:
    """Candidates per fact, strongest first. Conflicts stay visible; checks turn them into findings."""

    def __init__(self) -> None:
        self.items: list[Evidence] = []

    def pick(self, fact: str, *candidates: tuple[_T | None, str]) -> _T | None:
        """The first candidate value that is not None; all that are not None are recorded under `fact`."""
        chosen: _T | None = None
        for value, source in candidates:
            if value is None:
                continue
            self.items.append(Evidence(fact=fact, says=show(value), source=source, decides=chosen is None))
            chosen = value if chosen is None else chosen
        return chosen

    def note(self, fact: str, says: object, source: str) -> None:
        """Record evidence that decides nothing: another reading that an engine or a tool is known to take."""
        self.items.append(Evidence(fact=fact, says=show(says), source=source))


def show(value: object) -> str:
    """A value as evidence shows it: JSON words for booleans, the plain value of an enum, a list in brackets."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)
