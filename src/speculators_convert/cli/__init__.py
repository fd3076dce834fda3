"""The command line: parse, one api call, emit. Errors become text and an exit status in one place."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import typer

from speculators_convert import exits
from speculators_convert.cli import output
from speculators_convert.errors import SpecConvertError, UsageError, WriteError
from speculators_convert.model import pretty_json
from speculators_convert.version import __version__

_HELP = "Read, check, rewrite and prove DSpark speculative-decoding drafts. Exit status: 0 pass, 1 findings, 2 usage, 3 cannot read or write, 4 smoke could not run."
_COMMANDS = {
    "inspect": "inspect",
    "normalize": "normalize",
    "diff": "diff",
    "smoke": "smoke",
    "probe": "probe",
    "bench": "bench",
    "gate": "gate",
    "publish-check": "publish_check",
    "verify": "verify",
    "explain": "explain",
    "doctor": "doctor",
    "gate-folders": "folders",
    "verify-folders": "folders",
}
"""Command to the module that registers it, in the order of the help."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def build(*commands: str) -> typer.Typer:
    """The command line with these commands only, or with all: a call pays for the command that it names."""
    app = typer.Typer(name="spec-convert", help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True)
    app.callback()(_root)
    for name in dict.fromkeys(_COMMANDS[command] for command in commands or _COMMANDS):
        importlib.import_module(f"speculators_convert.cli.{name}").register(app)
    return app


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit.")) -> None:
    del version


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `spec-convert`; exits with the documented status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    named = given[:1] if given and given[0] in _COMMANDS else []
    try:
        try:
            _refuse_empty(given)
            build(*named)(given, prog_name="spec-convert")
        finally:
            sys.stdout.flush()
    except SpecConvertError as error:
        _emit_error(error, given)
        sys.exit(exits.status_of(error))
    except BrokenPipeError:
        _drop_output()
        sys.exit(exits.PASS)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _drop_output()
        _emit_error(WriteError(f"cannot write the answer ({error.strerror})", where="standard output", hint="free some space, or name another place"), [])
        sys.exit(exits.UNREADABLE)


def _drop_output() -> None:
    """What is still buffered has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _emit_error(error: SpecConvertError, given: list[str]) -> None:
    if "--format=json" in given or any(pair == ("--format", "json") for pair in pairwise(given)):
        try:
            output.write(pretty_json(exits.as_json(error)))
            sys.stdout.flush()
        except OSError:
            _drop_output()  # the same in words, and the status, are still said
    with suppress(OSError):
        output.note(exits.as_text(error))


def _refuse_empty(given: Sequence[str]) -> None:
    """An empty word is a variable of the shell that is not set: it must not stand for a default."""
    for option, text in pairwise(["", *given]):
        if not text or (text.startswith("--") and text.endswith("=") and option != "--server-arg"):
            where = text.rstrip("=") or (option if option.startswith("--") else "")
            raise UsageError("an argument is empty", where=where, expected="a value, or the option left out", hint="is a variable of the shell not set?")
