"""The JSON form of any value that leaves the process: sorted keys, no times, no machine names."""

from __future__ import annotations

from speculators_convert.model import Model, pretty_json
from speculators_convert.report.base import Reporter


def render(value: Model) -> str:
    """Indented JSON with sorted keys and a final newline."""
    return pretty_json(value.model_dump(mode="json"))


REPORTER = Reporter("json", render)
