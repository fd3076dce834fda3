"""The command line: parse, one api call, emit. Errors become text and an exit status in one place."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise

import typer

from speculators_convert import exits
from speculators_convert.cli import diff, doctor, explain, folders, gate, inspect, normalize, output, probe, publish_check, smoke, verify
from speculators_convert.errors import SpecConvertError
from speculators_convert.model import pretty_json
from speculators_convert.version import __version__

app = typer.Typer(
    name="spec-convert",
    help="Read, check, rewrite and prove DSpark speculative-decoding drafts. Exit status: 0 pass, 1 findings, 2 usage, 3 cannot read or write, 4 smoke could not run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit.")) -> None:
    del version


for _module in (inspect, normalize, diff, smoke, probe, gate, publish_check, verify, explain, doctor, folders):
    _module.register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `spec-convert`; exits with the documented status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, prog_name="spec-convert")
    except SpecConvertError as error:
        _emit_error(error, given)
        sys.exit(exits.status_of(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.PASS)


def _emit_error(error: SpecConvertError, given: list[str]) -> None:
    if "--format=json" in given or any(pair == ("--format", "json") for pair in pairwise(given)):
        output.write(pretty_json(exits.as_json(error)))
    output.note(exits.as_text(error))
