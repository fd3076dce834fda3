"""One table: exception type to exit status, and the text and JSON forms of an error."""

from __future__ import annotations

from collections.abc import Mapping

from speculators_convert.errors import RefusedError, SmokeError, SourceError, SpecConvertError, UsageError, WriteError
from speculators_convert.model import JsonValue

PASS, FINDINGS, USAGE, UNREADABLE, NOT_RUN = 0, 1, 2, 3, 4

STATUS: Mapping[type[SpecConvertError], int] = {RefusedError: FINDINGS, UsageError: USAGE, SourceError: UNREADABLE, WriteError: UNREADABLE, SmokeError: NOT_RUN}


def status_of(error: SpecConvertError) -> int:
    """Exit status of an error, by its nearest class in the table."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def as_text(error: SpecConvertError) -> str:
    """What, where, measured, expected and what to do, one line each."""
    lines = [f"error {error.code}: {error.what}"]
    rows = {"where": error.where, "measured": error.measured, "expected": error.expected, "do": error.hint}
    lines += [f"  {name:<9}{value}" for name, value in rows.items() if value not in (None, "")]
    return "\n".join(lines)


def as_json(error: SpecConvertError) -> JsonValue:
    """The error document that `--format json` writes in place of an answer."""
    fields = {"code": error.code, "message": error.what, "where": error.where, "measured": _text(error.measured), "expected": _text(error.expected), "hint": error.hint}
    return {"schema_version": "1", "error": fields, "exit_status": status_of(error)}


def _text(value: object) -> str:
    return "" if value is None else str(value)
