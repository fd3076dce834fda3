"""DeepSpec native checkpoints: one flat config, output layer ids, full vocabulary, `block_size` is gamma.

Rules: deepseek-ai/DeepSpec (labels anchor+1 .. anchor+B, so the anchor slot is sampled when no key says otherwise);
SGLang 0.5.23 `dspark_config.py:29-31` (a top-level `sample_from_anchor` false adds a slot and leaves `block_size` gamma).
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.native import NativeRules, has_role, read_native, stated_ids
from speculators_convert.spec import Anchor, Settings

ANCHOR_WHY = "format rule: DeepSpec trains slot k on the token k + 1 after the anchor"


class DeepSpec:
    """The flat native layout that DeepSpec writes and SGLang and vLLM read."""

    name = "deepspec"
    title = "DeepSpec native (deepseek-ai/DeepSpec)"
    order = 60

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A flat config with layer ids and no nested backbone."""
        config = checkpoint.config
        if "transformer_layer_config" in config or "speculators_model_type" in config:
            return ()
        if "target_layer_ids" in config:
            return ("config.json has target_layer_ids at the top level and no transformer_layer_config",)
        if stated_ids(checkpoint, "dspark_config") or ("dspark_target_layer_ids" in config and has_role(checkpoint, "fc.weight")):
            return ("config.json has the draft's layer ids in dspark_* keys, and the draft's tensors are files of their own",)
        return ()

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form of a native checkpoint."""
        return read_native(checkpoint, settings, NativeRules(self.name, Anchor.SAMPLED, ANCHOR_WHY, block_is_gamma=True))


FORMAT = DeepSpec()
