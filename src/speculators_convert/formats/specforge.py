"""SpecForge checkpoints: draft facts in `dflash_config`, heads as `markov_head.*` or, in older files, `logit_head.*`.

Rules: specforge 0.2.0 trains slot k on anchor+k+1, so the anchor slot is sampled; its own sampler drops slot 0, and the
engines disagree, so the other reading stays in the evidence. A file that states `sample_from_anchor` settles it.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.native import NativeRules, has_markov, native_role, read_native, stated_ids
from speculators_convert.spec import Anchor, Settings

LEGACY_PREFIX = "logit_head."


def specforge_role(name: str) -> str:
    """Role of a current or legacy SpecForge name."""
    return native_role(native_role(name).removeprefix(LEGACY_PREFIX))


class SpecForge:
    """A nested `dflash_config` with Markov tables."""

    name = "specforge"
    title = "SpecForge (sgl-project/SpecForge)"
    order = 45

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """`dflash_config` without layer ids at the top, and Markov tables or the label `projector_type` "dspark"."""
        table = checkpoint.config.get("dflash_config")
        if not isinstance(table, dict) or "transformer_layer_config" in checkpoint.config or stated_ids(checkpoint, "", "dspark_config"):
            return ()
        legacy = [name for name in checkpoint.tensors if native_role(name).startswith(LEGACY_PREFIX)]
        why = [f"legacy tensor name {legacy[0]}"] if legacy else []
        if has_markov(checkpoint, specforge_role) and not legacy:
            why.append("markov_head.* tensors beside a config with dflash_config")
        if table.get("projector_type") == "dspark":
            why.append('config.json#/dflash_config/projector_type is "dspark"')
        return tuple(why)

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; labels decide the anchor."""
        rules = NativeRules(
            self.name,
            Anchor.SAMPLED,
            "format rule: SpecForge's training labels are anchor+1 .. anchor+B (SGLang 0.5.23 and vLLM 0.33.0 read it so)",
            block_is_gamma=False,
            rename=specforge_role,
            disputes=((Anchor.BONUS, "SpecForge's own sampler drops slot 0; llama.cpp's converter and mlx-dspark read the file so. --set sample_from_anchor= states it"),),
        )
        return read_native(checkpoint, settings, rules)


FORMAT = SpecForge()
