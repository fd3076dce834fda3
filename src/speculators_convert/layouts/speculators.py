"""The Speculators layout, as speculators 0.9.0 writes it, without remote code.

Keys and conventions: speculators 0.9.0 `models/dspark/config.py` and `config.py`. `block_size` counts slots,
`aux_hidden_state_layer_ids` are output ids plus one, `embed_tokens` and the head of a full vocabulary belong to the target.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.assemble import AUTO_MAP, Draft, assemble
from speculators_convert.layouts.base import Kept, Options
from speculators_convert.layouts.borrowed import BORROWED
from speculators_convert.layouts.native_config import EXTRA_TABLE, backbone_keys, head_keys
from speculators_convert.layouts.parts import copied, dropped
from speculators_convert.layouts.reduced import GATHERED, reduced_parts, reduced_spec
from speculators_convert.layouts.refusals import NO_MAPPING, TABLE_ROLES, demand_portable
from speculators_convert.model import JsonValue
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.spec import D2T, Anchor, DraftSpec, Verifier, known
from speculators_convert.target.pairing import Pairing

WRITTEN_VERSION = "0.9.0"
"""Stated as `speculators_version` when the source does not know one: the release whose keys are written."""
_VERIFIER_OWNED = "owned by the target: speculators 0.8 and later take it from there"
_NOT_COMPARED = "the draft's copy of lm_head was left out without a comparison with the target's; pass --target to compare"


class SpeculatorsLayout:
    """Nested backbone config, own vocabulary tables, no copies of the target's weights."""

    name = "speculators"
    title = "Speculators (vllm-project/speculators 0.9.0)"
    compares_heads = False

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """Keep each role but those that the target owns."""
        demand_portable(spec, checkpoint, options.tables)
        if spec.d2t is D2T.ABSOLUTE:
            raise RefusedError(
                "d2t holds absolute ids, which no reader of this layout expects", where="d2t", measured="absolute", expected="offsets", hint="write d2t as target id minus draft id"
            )
        paired = verifier(spec, options.pairing)
        notes = list(owned_notes(spec, options.pairing))
        if options.kept is not None:
            return self._reduced(spec, checkpoint, options, options.kept, paired)
        without = left_out(spec)
        parts = [copied(role, ref) for role, ref in spec.tensors.items() if role not in without]
        unused = [dropped(ref, without[role]) for role, ref in spec.tensors.items() if role in without]
        return assemble(Draft(self.name, _config(spec, paired, checkpoint, options), parts, unused, notes, tp=options.tp, copy_code=options.copy_code), spec, checkpoint)

    def _reduced(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options, kept: Kept, paired: Verifier) -> RewritePlan:
        """Cut the vocabulary down on the way."""
        after = reduced_spec(spec, kept)
        parts = reduced_parts(spec, kept, options.pairing)
        parts += [copied(role, ref) for role, ref in spec.tensors.items() if role not in (*GATHERED, "embed_tokens.weight")]
        unused = [dropped(ref, _VERIFIER_OWNED) for role, ref in spec.tensors.items() if role == "embed_tokens.weight"]
        draft = Draft(
            self.name, _config(after, paired, checkpoint, options), parts, unused, [f"the vocabulary was reduced: {kept.why}"], tp=options.tp, copy_code=options.copy_code
        )
        return assemble(draft, spec, checkpoint, target=options.pairing.target if options.pairing else None)


def _config(spec: DraftSpec, paired: Verifier, checkpoint: Checkpoint, options: Options) -> dict[str, JsonValue]:
    """The canonical config, with the source's `auto_map` when code travels along."""
    kept: dict[str, JsonValue] = {AUTO_MAP: checkpoint.config[AUTO_MAP]} if options.copy_code and AUTO_MAP in checkpoint.config else {}
    return {**speculators_config(spec, paired), **kept}


def speculators_config(spec: DraftSpec, paired: Verifier) -> dict[str, JsonValue]:
    """The canonical config."""
    anchor = known(spec.anchor, "sample_from_anchor")
    gamma = known(spec.gamma, "gamma")
    ids = known(spec.target_layer_ids, "target_layer_ids")
    config: dict[str, JsonValue] = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "speculators_version": spec.producer_version or WRITTEN_VERSION,
        "speculators_config": {
            "algorithm": "dspark",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": gamma, "verifier_accept_k": 1, "accept_tolerance": 0.0}],
            "verifier": {"name_or_path": paired.name_or_path, "architectures": list(paired.architectures)},
        },
        "transformer_layer_config": {"model_type": "qwen3", **backbone_keys(spec), "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
        "draft_vocab_size": known(spec.draft_vocab_size, "draft_vocab_size"),
        "block_size": gamma + (anchor is Anchor.BONUS),
        "sample_from_anchor": anchor is Anchor.SAMPLED,
        "aux_hidden_state_layer_ids": [item + 1 for item in ids],
        "mask_token_id": known(spec.mask_token_id, "mask_token_id"),
        "sliding_window_non_causal": not spec.sliding_causal,
        "target_hidden_size": spec.target_hidden_size if spec.target_hidden_size != spec.hidden_size else None,
        **head_keys(spec),
        "tie_word_embeddings": spec.tie_word_embeddings,
        "dtype": known(spec.dtype, "dtype"),
    }
    if spec.num_target_layers is not None:
        config[EXTRA_TABLE] = {"num_target_layers": spec.num_target_layers}
    return config


def left_out(spec: DraftSpec) -> dict[str, str]:
    """Roles that the layout has no place for, with the reason: copies of the target's weights, tables that map nothing."""
    if spec.reduced_vocabulary:
        return {"embed_tokens.weight": _VERIFIER_OWNED}
    return {**dict.fromkeys(BORROWED, _VERIFIER_OWNED), **dict.fromkeys(TABLE_ROLES, NO_MAPPING)}


def owned_notes(spec: DraftSpec, pairing: Pairing | None) -> Iterator[str]:
    """What is said of a head that is left out; `RefusedError` when it is not the target's."""
    if spec.reduced_vocabulary or "lm_head.weight" not in spec.tensors:
        return
    if pairing is None or pairing.head_rows is None:
        yield _NOT_COMPARED
        return
    different = sum(not row.equal for row in pairing.head_rows)
    if different:
        raise RefusedError(
            "the draft's lm_head is not the target's, and this layout would replace it with the target's",
            where="lm_head.weight",
            measured=f"{different} of {len(pairing.head_rows)} sampled rows differ",
            expected="equal rows",
            hint="pass the target that the draft was trained for",
        )


def verifier(spec: DraftSpec, pairing: Pairing | None) -> Verifier:
    """The target's name and architectures: what the draft says, then what `--target` says. A local path is no name for others."""
    target = pairing.target.id if pairing else None
    name = spec.verifier.name_or_path or (target.name if target and target.kind == "hub" else None)
    if name is None:
        raise RefusedError(
            "the file does not name its target", where="speculators_config.verifier.name_or_path", measured="nothing", expected="a repository", hint="pass --set verifier=ORG/NAME"
        )
    return Verifier(name_or_path=name, architectures=spec.verifier.architectures or (pairing.architectures if pairing else ()))


LAYOUT = SpeculatorsLayout()
