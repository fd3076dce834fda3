"""Drafts without a Markov head: z-lab DFlash, NeMo's DFlash, and DeepSpec files with `markov_rank` 0.

Rules: z-lab/dflash keeps its facts in `dflash_config` and its block is the anchor and B - 1 drafts; DeepSpec's
`dflash_*_block7` files are flat, carry a DSpark label, and keep DeepSpec's sampled anchor, so gamma is `block_size`.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.deepspec import ANCHOR_WHY
from speculators_convert.formats.native import NativeRules, algorithm_of, architectures, has_markov, has_role, read_native, stated_ids
from speculators_convert.spec import Anchor, Settings


class DFlash:
    """DFlash layers, and no Markov head in tensors or config."""

    name = "dflash"
    title = "DFlash without Markov head (z-lab/dflash, DeepSpec with markov_rank 0)"
    order = 55

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """No Markov table, none asked for, and a DFlash label or DFlash tensors."""
        if "transformer_layer_config" in checkpoint.config or "speculators_model_type" in checkpoint.config or has_markov(checkpoint) or _asks_for_markov(checkpoint):
            return ()
        nested, top = stated_ids(checkpoint, "dflash_config"), stated_ids(checkpoint, "")
        if not nested and not top:
            return ()
        labels = [name for name in architectures(checkpoint) if algorithm_of(name) == "dflash"]
        drafts = has_role(checkpoint, "fc.weight")
        if not drafts and not labels:
            return ()
        where = "dflash_config" if nested else "the top level"
        return (f"config.json has target_layer_ids in {where}", "no Markov tensors and no markov_rank over 0", *(f'config.json#/architectures is "{name}"' for name in labels))

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form, its `markov` None."""
        labels = [algorithm_of(name) for name in architectures(checkpoint)]
        if stated_ids(checkpoint, "") and "dflash" not in labels:
            return read_native(checkpoint, settings, NativeRules(self.name, Anchor.SAMPLED, ANCHOR_WHY, block_is_gamma=True))
        why = "format rule: a DFlash block is the anchor and N drafts"
        return read_native(checkpoint, settings, NativeRules(self.name, Anchor.BONUS, why, block_is_gamma=False))


def _asks_for_markov(checkpoint: Checkpoint) -> bool:
    tables = [checkpoint.config, checkpoint.config.get("dflash_config"), checkpoint.config.get("dspark_config")]
    ranks = [table.get("markov_rank") for table in tables if isinstance(table, dict)]
    return any(type(rank) is int and rank > 0 for rank in ranks)


FORMAT = DFlash()
