"""Why Speculators drafts must be refused in this process; None when the plugin is sound."""

from __future__ import annotations

from speculators_convert.errors import SpecConvertError


class PluginError(SpecConvertError):
    """The plugin is not in force as it must be: nothing is served."""

    code = "E500"


problem: str | None = "the plugin was imported but never registered"


def require_sound() -> None:
    """Raise with the reason when the plugin cannot serve here."""
    if problem:
        raise PluginError("the SGLang plugin of speculators-convert cannot serve", measured=problem, hint="run `spec-convert doctor` in this environment")
