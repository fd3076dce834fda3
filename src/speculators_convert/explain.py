"""What each code means: the docstring of a check, or the text of a gate reason."""

from __future__ import annotations

import difflib
from typing import Literal

from speculators_convert.checks import CHECKS
from speculators_convert.errors import UsageError
from speculators_convert.gate.codes import GATE_CODES
from speculators_convert.model import Model


class Explanation(Model):
    """One code."""

    code: str
    title: str
    severity: str
    text: str


class Explanations(Model):
    """What `explain` writes."""

    schema_version: Literal["1"] = "1"
    codes: tuple[Explanation, ...]

    def text(self) -> str:
        """One code in full, or one line for each."""
        if len(self.codes) == 1:
            only = self.codes[0]
            return f"{only.code} ({only.severity}): {only.title}\n\n{only.text}\n"
        return "".join(f"{item.code}  {item.severity:<8} {item.title}\n" for item in self.codes)


def explain(code: str | None) -> Explanations:
    """The explanation of one code, or of all; `UsageError` names the nearest code to an unknown one."""
    known = {item.code: item for item in _all()}
    if code is None:
        return Explanations(codes=tuple(known.values()))
    if code.upper() not in known:
        near = difflib.get_close_matches(code.upper(), known, n=1)
        raise UsageError(
            "there is no such code",
            where=code,
            expected=f"one of {len(known)} codes; `spec-convert explain` lists them",
            hint=f"did you mean {near[0]}?" if near else "copy the code from a report",
        )
    return Explanations(codes=(known[code.upper()],))


def _all() -> list[Explanation]:
    checks = [Explanation(code=code, title=check.title, severity=check.severity.value, text=check.doc) for code, check in CHECKS.items()]
    return checks + [Explanation(code=code, title=item.title, severity="gate", text=f"## How to fix\n{item.hint}.") for code, item in GATE_CODES.items()]
