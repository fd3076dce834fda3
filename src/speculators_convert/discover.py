"""Extension points: one file is one object; a package finds its own files."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def objects(package: ModuleType, name: str) -> list[Any]:
    """The object called `name` of each module of `package` that has one, sorted by module name."""
    found = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, name):
            found.append(getattr(module, name))
    return found
