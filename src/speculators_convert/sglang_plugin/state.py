"""Why Speculators drafts must be refused in this process; None when the plugin is sound."""

from __future__ import annotations

from speculators_convert.errors import SmokeError

problem: str | None = "the plugin was imported but never registered"


def require_sound() -> None:
    """Raise with the reason when the plugin cannot serve here."""
    if problem:
        raise SmokeError("the SGLang plugin of speculators-convert cannot serve", where="sglang_plugin", measured=problem, hint="run `spec-convert doctor` in this environment")
