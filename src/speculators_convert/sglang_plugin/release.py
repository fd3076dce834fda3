"""Which SGLang release the plugin was written and tested for."""

from __future__ import annotations

import os
from importlib import metadata

TESTED = "0.5.23"
ALLOW_VARIABLE = "SPEC_CONVERT_SGLANG_UNTESTED"
"""Set to 1 to serve with another release. `doctor` and the evidence files record that it was set."""


def installed() -> str | None:
    """Version of the installed `sglang` distribution."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def untested_allowed() -> bool:
    """Whether the user accepts a release that was not tested."""
    return os.environ.get(ALLOW_VARIABLE) == "1"


def problem(version: str | None, *, allowed: bool) -> str | None:
    """Why `version` is refused; None when it is the tested one or any other is allowed."""
    if version == TESTED or (version is not None and allowed):
        return None
    found = f"SGLang {version}" if version else "no SGLang"
    return f"{found} is installed, tested with {TESTED} only: install sglang=={TESTED}, or set {ALLOW_VARIABLE}=1 to try it"
