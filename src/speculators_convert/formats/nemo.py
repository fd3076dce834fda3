"""NeMo AutoModel checkpoints: the DeepSpec layout under architecture names that few engines know.

Rules: nemo-automodel 0.7.0 uses the DeepSpec builder for all of them; the registries are those of vLLM 0.33.0 and
SGLang 0.5.23. Qwen3DSparkModel and Gemma4DSparkModel cannot be told from DeepSpec's own files and are read as those.
"""

from __future__ import annotations

from collections.abc import Mapping

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.deepspec import ANCHOR_WHY
from speculators_convert.formats.native import NativeRules, architectures, read_native, stated_ids
from speculators_convert.spec import Anchor, Settings

ENGINES: Mapping[str, tuple[str, ...]] = {
    "Qwen3DSparkModel": ("SGLang 0.5.23", "vLLM 0.33.0"),
    "Gemma4DSparkModel": ("vLLM 0.33.0",),
    "DeepseekV4DSparkModel": (),
    "Glm5_2DSparkModel": (),
    "KimiK3DSparkModel": (),
    "MiniMaxM3DSparkModel": (),
}
"""Architecture that NeMo writes to the engines that register it."""
_OWN = frozenset(name for name, engines in ENGINES.items() if not engines)


class Nemo:
    """Flat native files under a name of NeMo's own."""

    name = "nemo"
    title = "NeMo AutoModel (NVIDIA-NeMo/Automodel)"
    order = 58

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A flat config with layer ids at the top and one of NeMo's architecture names."""
        own = [name for name in architectures(checkpoint) if name in _OWN]
        if not own or "transformer_layer_config" in checkpoint.config or not stated_ids(checkpoint, ""):
            return ()
        return (f'config.json#/architectures is "{own[0]}", which NeMo AutoModel writes', "config.json has target_layer_ids at the top level")

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; the note says which engine registers the architecture."""
        notes = tuple(
            ("architecture_engines", ", ".join(ENGINES[name]) or "none", f"config.json#/architectures: {name} in the registries of vLLM 0.33.0 and SGLang 0.5.23")
            for name in architectures(checkpoint)
            if name in ENGINES
        )
        return read_native(checkpoint, settings, NativeRules(self.name, Anchor.SAMPLED, ANCHOR_WHY, block_is_gamma=True, notes=notes))


FORMAT = Nemo()
