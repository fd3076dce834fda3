"""The line on which a JSON pointer's value stands, so that a report can point into a file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


@dataclass
class _Level:
    """One open object or list: the key or index that is being read."""

    is_object: bool
    key: str = ""
    index: int = 0
    expects_key: bool = True


@dataclass
class _Walk:
    """Where the walk is, and the line of each pointer that it passed."""

    levels: list[_Level] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=lambda: {"": 1})

    def pointer(self) -> str:
        """The pointer of the value that is being read."""
        return "".join(f"/{_escape(level.key) if level.is_object else level.index}" for level in self.levels)


def line_of(text: str, pointer: str) -> int:
    """The line (from 1) of the key or element that `pointer` names; of its nearest parent when it is not there."""
    lines = _lines(text)
    while pointer and pointer not in lines:
        pointer = pointer.rpartition("/")[0]
    return lines[pointer]


def _lines(text: str) -> dict[str, int]:
    walk, line, position = _Walk(), 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        _step(walk, match.group(), line)
    return walk.lines


def _step(walk: _Walk, part: str, line: int) -> None:
    top = walk.levels[-1] if walk.levels else None
    if top is not None and top.is_object and top.expects_key and part.startswith('"'):
        top.key, top.expects_key = _unescape(part), False
        walk.lines.setdefault(walk.pointer(), line)
    elif part == "," and top is not None:
        top.expects_key, top.index = True, top.index + 1
    elif part in "}]":
        del walk.levels[-1:]
    elif part != ":":
        if top is not None and not top.is_object:
            walk.lines.setdefault(walk.pointer(), line)
        if part in "{[":
            walk.levels.append(_Level(is_object=part == "{"))


def _unescape(literal: str) -> str:
    """The text of a JSON string literal; the literal itself when its escapes are wrong."""
    try:
        return str(json.loads(literal))
    except ValueError:
        return literal[1:-1]


def _escape(key: str) -> str:
    """RFC 6901: `~` and `/` in a key."""
    return key.replace("~", "~0").replace("/", "~1")
