"""ModelOpt checkpoints: a DFlash label over DSpark weights, heads under flat names.

Rules: nvidia-modelopt 0.47.0 DSparkExporter. `shift_label` true trains slot k on anchor+k+1; false is DFlash's 1+N block.
SGLang and vLLM ignore the flat names without an error, so a rewrite must rename them.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.native import NativeRules, native_role, read_native
from speculators_convert.spec import Anchor, Settings

_FLAT_PREFIXES = {
    "markov_w1.": "markov_head.markov_w1.",
    "markov_w2.": "markov_head.markov_w2.",
    "gate_proj.": "markov_head.gate_proj.",
    "joint_proj.": "markov_head.joint_proj.",
    "confidence_proj.": "confidence_head.proj.",
}


def modelopt_role(name: str) -> str:
    """Role of a flat ModelOpt name."""
    name = native_role(name)
    return next((role + name.removeprefix(flat) for flat, role in _FLAT_PREFIXES.items() if name.startswith(flat)), name)


class ModelOpt:
    """Flat Markov names beside a nested `dflash_config`."""

    name = "modelopt"
    title = "NVIDIA ModelOpt (NVIDIA/Model-Optimizer)"
    order = 40

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A Markov table under its flat name, and no Speculators config."""
        flat = [name for name in checkpoint.tensors if native_role(name) in ("markov_w1.weight", "markov_w2.weight")]
        if not flat or "transformer_layer_config" in checkpoint.config or not isinstance(checkpoint.config.get("dflash_config"), dict):
            return ()
        return (f"flat tensor name {flat[0]}", "config.json has dflash_config")

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; `shift_label` states the anchor."""
        why = "format rule: without shift_label ModelOpt trains DFlash's block, whose anchor slot is not sampled"
        return read_native(checkpoint, settings, NativeRules(self.name, Anchor.BONUS, why, block_is_gamma=False, rename=modelopt_role))


FORMAT = ModelOpt()
