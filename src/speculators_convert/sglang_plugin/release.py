"""Which SGLang release the plugin was written and tested for."""

from __future__ import annotations

import os
import re
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


def has(version: str, installed_version: str | None = None) -> bool:
    """Whether the installed SGLang is `version` or newer; false for an empty version, which stands for no release yet."""
    found = installed_version or installed()
    return bool(version and found) and _numbers(found or "") >= _numbers(version)


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of each part: 0.5.24rc1 counts as 0.5.24."""
    return tuple(int(digits.group()) for part in version.split(".") if (digits := re.match(r"\d+", part)))
