"""NeMo AutoModel checkpoints: the DeepSpec layout under architecture names that few engines know.

Rules: nemo-automodel 0.7.0 uses the DeepSpec builder for all of them; the registries are those of vLLM 0.33.0 and
SGLang 0.5.23. Qwen3DSparkModel and Gemma4DSparkModel cannot be told from DeepSpec's own files and are read as those.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.deepspec import ANCHOR_WHY
from speculators_convert.formats.native import NativeRules, architectures, read_native, stated_ids
from speculators_convert.spec import Anchor, Settings

OWN = ("DeepseekV4DSparkModel", "Glm5_2DSparkModel", "KimiK3DSparkModel", "MiniMaxM3DSparkModel")
"""Architectures that NeMo writes and no engine registers."""


class Nemo:
    """Flat native files under a name of NeMo's own."""

    name = "nemo"
    title = "NeMo AutoModel (NVIDIA-NeMo/Automodel)"
    order = 58

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A flat config with layer ids at the top and one of NeMo's architecture names."""
        own = [name for name in architectures(checkpoint) if name in OWN]
        if not own or "transformer_layer_config" in checkpoint.config or not stated_ids(checkpoint, ""):
            return ()
        return (f'config.json#/architectures is "{own[0]}", which NeMo AutoModel writes', "config.json has target_layer_ids at the top level")

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; a note says that no engine registers the architecture."""
        own = next(name for name in architectures(checkpoint) if name in OWN)
        notes = (("architecture_engines", "none", f"config.json#/architectures: {own} is in the registry of neither vLLM 0.33.0 nor SGLang 0.5.23"),)
        return read_native(checkpoint, settings, NativeRules(self.name, Anchor.SAMPLED, ANCHOR_WHY, block_is_gamma=True, notes=notes))


FORMAT = Nemo()
