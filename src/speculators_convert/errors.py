"""Exceptions: raised when the tool cannot look or cannot act. A bad checkpoint is a finding, not an exception."""

from __future__ import annotations


class SpecConvertError(Exception):
    """Base of all errors; `code` is stable, `hint` says what to do next."""

    code = "E000"

    def __init__(self, what: str, *, where: str = "", measured: object = None, expected: object = None, hint: str = "") -> None:
        self.what, self.where, self.measured, self.expected, self.hint = what, where, measured, expected, hint
        parts = [f"{where}: {what}" if where else what]
        if measured is not None:
            parts.append(f"measured {measured}")
        if expected is not None:
            parts.append(f"expected {expected}")
        super().__init__("; ".join(parts))


class UsageError(SpecConvertError):
    """The call itself is wrong (exit 2)."""

    code = "E200"


class RefusedError(SpecConvertError):
    """The checkpoint has errors, or the layout cannot express it: nothing was written (exit 1)."""

    code = "E100"


class SourceError(SpecConvertError):
    """A file could not be read (exit 3)."""

    code = "E300"


class WriteError(SpecConvertError):
    """A file could not be written (exit 3)."""

    code = "E310"


class SmokeError(SpecConvertError):
    """The smoke run could not be made (exit 4)."""

    code = "E400"
