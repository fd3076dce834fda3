"""The layout of SpecForge 0.2.0: draft facts in `dflash_config`, no embedding, no head, no remote code.

SpecForge trains slot k on the token k + 1 after the anchor. Readers disagree about files that do not say so, so the key
`sample_from_anchor` is written; what they would count as `block_size` without a sampled anchor is not settled, so such a
draft is refused.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.assemble import Draft, assemble
from speculators_convert.layouts.base import Options
from speculators_convert.layouts.borrowed import BORROWED
from speculators_convert.layouts.native_config import EXTRA_TABLE, backbone_keys, extra_keys, head_keys
from speculators_convert.layouts.parts import copied, dropped
from speculators_convert.layouts.refusals import NO_MAPPING, TABLE_ROLES, demand_full_vocabulary, demand_portable
from speculators_convert.layouts.speculators import owned_notes
from speculators_convert.model import JsonValue
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.spec import Anchor, DraftSpec, known

_LEFT_OUT = {**dict.fromkeys(BORROWED, "SpecForge takes it from the target"), **dict.fromkeys(TABLE_ROLES, NO_MAPPING)}


class SpecForgeLayout:
    """A nested `dflash_config`, heads under `markov_head` and `confidence_head`."""

    name = "specforge"
    title = "SpecForge (sgl-project/SpecForge 0.2.0)"
    compares_heads = False

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """Keep each role but head and embedding."""
        demand_portable(spec, checkpoint, options.tables)
        demand_full_vocabulary(spec, self.title)
        if known(spec.anchor, "sample_from_anchor") is Anchor.BONUS:
            raise RefusedError(
                "SpecForge has no form for a draft whose anchor slot is not sampled",
                where="sample_from_anchor",
                measured="false",
                expected="true",
                hint="use --layout deepspec or sglang",
            )
        if spec.markov is None:
            raise RefusedError("a SpecForge DSpark draft has a Markov head", where="markov_rank", measured=0, expected="at least 1", hint="use --layout speculators or deepspec")
        parts = [copied(role, ref) for role, ref in spec.tensors.items() if role not in _LEFT_OUT]
        unused = [dropped(ref, _LEFT_OUT[role]) for role, ref in spec.tensors.items() if role in _LEFT_OUT]
        return assemble(
            Draft(self.name, specforge_config(spec), parts, unused, list(owned_notes(spec, options.pairing)), tp=options.tp, copy_code=options.copy_code), spec, checkpoint
        )


def specforge_config(spec: DraftSpec) -> dict[str, JsonValue]:
    """Backbone at the top, draft facts in `dflash_config`."""
    table = {
        "projector_type": "dspark",
        "attention_mode": "gqa",
        "target_layer_ids": list(known(spec.target_layer_ids, "target_layer_ids")),
        "mask_token_id": known(spec.mask_token_id, "mask_token_id"),
        **head_keys(spec),
    }
    config: dict[str, JsonValue] = {
        "architectures": ["DSparkDraftModel"],
        "model_type": "qwen3",
        **backbone_keys(spec),
        "block_size": known(spec.gamma, "gamma"),
        "sample_from_anchor": True,
        "dflash_config": table,
        "dtype": known(spec.dtype, "dtype"),
        "tie_word_embeddings": spec.tie_word_embeddings,
        EXTRA_TABLE: extra_keys(spec),
    }
    if spec.num_target_layers is not None:
        config["num_target_layers"] = spec.num_target_layers
    if spec.target_hidden_size not in (None, spec.hidden_size):
        config["target_hidden_size"] = spec.target_hidden_size
    if not spec.sliding_causal:
        config["is_causal"] = False
    return config


LAYOUT = SpecForgeLayout()
