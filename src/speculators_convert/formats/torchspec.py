"""TorchSpec checkpoints: renamed backbone tensors, and a `num_target_layers` that counts taps.

Rules: lightseekorg/TorchSpec. `context_proj` is `fc`, `context_norm` is `hidden_norm`, `final_norm` is `norm`; the depth
of the target stands in `target_num_hidden_layers`. Its DFlash block is 1+N; its DSpark port samples the anchor slot.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.native import NativeRules, has_markov, native_role, read_native
from speculators_convert.spec import Anchor, Settings

_NAMES = {"context_proj.weight": "fc.weight", "context_norm.weight": "hidden_norm.weight", "final_norm.weight": "norm.weight"}


def torchspec_role(name: str) -> str:
    """Role of a TorchSpec name."""
    name = native_role(name)
    return _NAMES.get(name, name)


class TorchSpec:
    """The renamed projection tells these files apart."""

    name = "torchspec"
    title = "TorchSpec (lightseekorg/TorchSpec)"
    order = 38

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A tensor `context_proj.weight`."""
        renamed = [name for name in checkpoint.tensors if native_role(name) == "context_proj.weight"]
        return (f"tensor name {renamed[0]}",) if renamed and "transformer_layer_config" not in checkpoint.config else ()

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; Markov tables decide between the DSpark port and DFlash."""
        anchor, why = Anchor.BONUS, "format rule: TorchSpec's DFlash block is the anchor and N drafts"
        if has_markov(checkpoint, torchspec_role):
            anchor, why = Anchor.SAMPLED, "format rule: TorchSpec's DSpark port samples the anchor slot"
        rules = NativeRules(self.name, anchor, why, block_is_gamma=False, rename=torchspec_role, depth_key="target_num_hidden_layers")
        return read_native(checkpoint, settings, rules)


FORMAT = TorchSpec()
