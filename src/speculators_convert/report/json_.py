"""The JSON form of any value that leaves the process: sorted keys, no times, no machine names."""

from __future__ import annotations

from speculators_convert.model import Model, pretty_json
from speculators_convert.report.base import Reporter


def render(value: Model) -> str:
    """Indented JSON with sorted keys and a final newline."""
    kind = type(value)
    fields = (f'  "{name}": {_field(value, name)}' for name in sorted({*kind.model_fields, *kind.model_computed_fields}))
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _field(value: Model, name: str) -> str:
    """One field, indented. Field by field, because all of a large report as plain values would double the memory."""
    text = pretty_json(value.model_dump(mode="json", include={name})[name])
    return text.rstrip("\n").replace("\n", "\n  ")


REPORTER = Reporter("json", render)
