"""One table: exception type to exit status, and the text and JSON forms of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from speculators_convert.errors import RefusedError, SmokeError, SourceError, SpecConvertError, UsageError, WriteError
from speculators_convert.model import JsonValue, Model, printable

PASS, FINDINGS, USAGE, UNREADABLE, NOT_RUN = 0, 1, 2, 3, 4

STATUS: Mapping[type[SpecConvertError], int] = {RefusedError: FINDINGS, UsageError: USAGE, SourceError: UNREADABLE, WriteError: UNREADABLE, SmokeError: NOT_RUN}


def status_of(error: SpecConvertError) -> int:
    """Exit status of an error, by its nearest class in the table."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def as_text(error: SpecConvertError) -> str:
    """What, where, measured, expected and what to do, one line each."""
    lines = [f"error {error.code}: {error.what}"]
    rows = {"where": error.where, "measured": error.measured, "expected": error.expected, "do": error.hint}
    lines += [f"  {name:<9}{printable(str(value))}" for name, value in rows.items() if value not in (None, "")]
    return "\n".join(lines)


class ErrorFields(Model):
    """What went wrong, where, and what to do."""

    code: str
    message: str
    where: str
    measured: str
    expected: str
    hint: str


class ErrorDocument(Model):
    """What `--format json` writes in place of an answer."""

    schema_version: Literal["1"] = "1"
    error: ErrorFields
    exit_status: int


def as_json(error: SpecConvertError) -> JsonValue:
    """The error document as a JSON value."""
    fields = ErrorFields(code=error.code, message=error.what, where=error.where, measured=_text(error.measured), expected=_text(error.expected), hint=error.hint)
    return ErrorDocument(error=fields, exit_status=status_of(error)).model_dump(mode="json")


def _text(value: object) -> str:
    return "" if value is None else str(value)
