"""The form of an engine's data file: rules over named facts, each with its verdict, reason and source."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field

from speculators_convert.model import JsonValue, Model

Facts = Mapping[str, JsonValue]


class Ruling(StrEnum):
    """What an engine does with a draft, best first."""

    LOADS = "loads"
    NEEDS_NORMALIZE = "needs-normalize"
    UNSUPPORTED = "unsupported"

    @property
    def rank(self) -> int:
        """0 for loads, 2 for unsupported."""
        return tuple(type(self)).index(self)


class Condition(Model):
    """A test of one fact, or a combination. A fact that is not known fails `lt`, `gt` and `in`."""

    fact: str | None = None
    eq: JsonValue = None
    ne: JsonValue = None
    in_: tuple[JsonValue, ...] | None = Field(default=None, alias="in")
    lt: float | None = None
    gt: float | None = None
    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None

    def holds(self, facts: Facts) -> bool:
        """Whether the condition is true of these facts."""
        if self.all is not None:
            return all(item.holds(facts) for item in self.all)
        if self.any is not None:
            return any(item.holds(facts) for item in self.any)
        value = facts[self.fact or ""]
        if self.in_ is not None:
            return value in self.in_
        if self.lt is not None:
            return value is not None and value < self.lt
        if self.gt is not None:
            return value is not None and value > self.gt
        return bool(value != self.ne) if "ne" in self.model_fields_set else bool(value == self.eq)

    def names(self) -> frozenset[str]:
        """Facts that the condition looks at."""
        inner = (*(self.all or ()), *(self.any or ()))
        return frozenset({self.fact} if self.fact else ()).union(*(item.names() for item in inner))


class Rule(Model):
    """One thing that an engine does: `decides` is the key or tensor that decides, `source` where it was read."""

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    when: Condition
    verdict: Ruling
    decides: str
    reason: str = Field(description="May name facts in braces")
    source: str
    refuses: bool = Field(default=True, description="False when nobody knows that the engine refuses the draft: it was not tried, or the file leaves it open")
    overrides: bool = Field(default=False, description="When it holds, no other rule is looked at")


class Launch(Model):
    """A command, and a line to run before it. The first whose condition holds is taken."""

    when: Condition | None = None
    before: str = ""
    words: tuple[str, ...] = Field(description="With {target}, {draft}, {draft_json}, {gguf}, {target_gguf} and {gamma}")


class Addition(Model):
    """Words to add to the launch command when a condition holds."""

    when: Condition
    append: tuple[str, ...] = ()
    environment: str = Field(default="", description="NAME=VALUE to put before the command")
    reason: str
    source: str

    @property
    def words(self) -> str:
        """What is added, for a reason."""
        return " ".join((self.environment, *self.append)).strip()


class Preparation(Model):
    """The layout to write first; the first whose condition holds is taken."""

    when: Condition | None = None
    layout: str
    needs_target: bool = False


class Engine(Model):
    """One engine version. A new version is a new file of this form."""

    schema_version: Literal["1"] = "1"
    engine: str
    version: str
    read: str = Field(description="What the rules were read from, or run against")
    launches: tuple[Launch, ...] = Field(min_length=1)
    tensor_parallel: tuple[str, ...] = Field(default=(), description="Words for a degree above 1, with {tp}")
    additions: tuple[Addition, ...] = ()
    preparations: tuple[Preparation, ...] = ()
    rules: tuple[Rule, ...]
