"""Options that commands share, and the parsing of `--set`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from speculators_convert.errors import UsageError
from speculators_convert.model import Severity
from speculators_convert.spec import Settings

_Options = TypeVar("_Options", bound=BaseModel)


class Format(StrEnum):
    """Output forms."""

    TEXT = "text"
    JSON = "json"


class FailOn(StrEnum):
    """Lowest severity that makes the exit status 1."""

    ERROR = "error"
    WARNING = "warning"

    @property
    def severity(self) -> Severity:
        """The severity of the same name."""
        return Severity(self.value)


Reference = Annotated[str, typer.Argument(metavar="REF", help="Folder of the draft checkpoint.", show_default=False)]
Target = Annotated[str | None, typer.Option("--target", metavar="REF", help="Folder of the target model; compares vocabulary, sizes and head rows.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output form.")]
TensorParallel = Annotated[list[int] | None, typer.Option("--tp", min=1, metavar="N", help="Tensor-parallel degree to check for; repeatable.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="State a fact that the file leaves open or has wrong (sample_from_anchor=true, mask_token_id=5, ...); repeatable."),
]


def parse_settings(pairs: Sequence[str] | None) -> Settings:
    """`Settings` from `KEY=VALUE` texts; `UsageError` names a bad one and lists the keys."""
    values: dict[str, object] = {}
    keys = ", ".join(sorted(Settings.model_fields))
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or key not in Settings.model_fields:
            raise UsageError("--set takes KEY=VALUE with a known key", where=pair, expected=f"one of {keys}")
        try:
            values[key] = json.loads(text)
        except (ValueError, RecursionError):
            values[key] = text
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--set {first['loc'][0]}: {first['msg']}", measured=repr(first["input"])) from error


def checked(kind: type[_Options], **values: object) -> _Options:
    """Options of a command; `UsageError` names the first that has a value out of its range."""
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else kind.__name__
        raise UsageError("an option has no value that it can have", where=where, measured=repr(first["input"])[:80], expected=first["msg"]) from error
