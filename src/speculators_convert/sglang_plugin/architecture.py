"""Makes the draft's class known to SGLang's model registry, when SGLang first asks for a model class."""

from __future__ import annotations

from typing import Any

from speculators_convert.sglang_plugin import ARCHITECTURE


def make_known(model_config: Any) -> None:
    """Add the class for a config that came through the plugin's parser."""
    if ARCHITECTURE not in (getattr(model_config.hf_config, "architectures", None) or ()):
        return
    from sglang.srt.models.registry import ModelRegistry  # noqa: PLC0415

    from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel  # noqa: PLC0415

    ModelRegistry.models.setdefault(ARCHITECTURE, SpeculatorsDSparkModel)
