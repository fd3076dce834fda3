"""Read, check, rewrite and prove DSpark speculative-decoding drafts.

    from speculators_convert.api import inspect, normalize, smoke

Each returns the pydantic model behind the command's JSON. Importing the package loads neither torch nor transformers.
The first two are names of the package too; `smoke` is a package inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speculators_convert.version import __version__

if TYPE_CHECKING:
    from speculators_convert.api import inspect, normalize

__all__ = ["__version__", "inspect", "normalize"]


def __getattr__(name: str) -> Any:
    if name in ("inspect", "normalize"):
        from speculators_convert import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
