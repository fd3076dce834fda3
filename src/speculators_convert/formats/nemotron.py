"""NVIDIA Nemotron-3.5 DSpark drafts: `dflash_config` beside `dspark_*` keys, own embeddings, a bonus anchor.

Rules: the published config (both layer-id spellings, `sample_from_anchor` false in two places, `dspark_bonus_anchor`);
llama.cpp drafts `block_size` minus one tokens from it, SGLang 0.5.23 takes `block_size` itself as gamma.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.base import Reading
from speculators_convert.formats.native import NativeRules, read_native
from speculators_convert.spec import Anchor, Settings

_MARKS = ("has_embed_tokens", "dspark_bonus_anchor", "dspark_fixup_head_type", "dspark_markov_rank", "eagle_aux_hidden_state_layer_ids", "dflash_query_causal")


class Nemotron:
    """At least two of the keys that only these files have, beside `dflash_config`."""

    name = "nemotron"
    title = "NVIDIA Nemotron-3.5 DSpark"
    order = 30

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """`dflash_config` and two or more of its own keys."""
        config = checkpoint.config
        if not isinstance(config.get("dflash_config"), dict) or "transformer_layer_config" in config or "speculators_model_type" in config:
            return ()
        marks = [key for key in _MARKS if key in config]
        return (f"config.json has dflash_config and {', '.join(marks)}",) if len(marks) > 1 else ()

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form; the anchor is stated by the file."""
        rules = NativeRules(
            self.name,
            Anchor.BONUS,
            "format rule: Nemotron-3.5 drafts carry the anchor in a slot of its own",
            block_is_gamma=False,
            gamma_dispute="SGLang 0.5.23 takes block_size as gamma and adds a slot. --set gamma= states it",
        )
        return read_native(checkpoint, settings, rules)


FORMAT = Nemotron()
