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


def problem() -> str | None:
    """Why this release is refused; None when it is the tested one or another is allowed."""
    version = installed()
    if version == TESTED or (version is not None and untested_allowed()):
        return None
    return f"SGLang {version or 'is not installed'}: tested with {TESTED} only; install sglang=={TESTED}, or set {ALLOW_VARIABLE}=1 to try"
