"""Checks: one function per code, one file per family. Importing the package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from speculators_convert.checks.core import Check, Evidence, registry, run

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

CHECKS = registry()

__all__ = ["CHECKS", "Check", "Evidence", "run"]
