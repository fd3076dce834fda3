"""Run the command line inside the test process and look at status, stdout and stderr."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from speculators_convert.cli import main


@dataclass(frozen=True)
class Outcome:
    """What one call left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """stdout as JSON; fails when it is anything more than one document."""
        return json.loads(self.stdout)


def spec_convert(*arguments: object) -> Outcome:
    """Call `spec-convert` with these arguments."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Outcome(status, out.getvalue(), err.getvalue())
