"""The flat layout that stock SGLang 0.5.23 serves: full vocabulary, the target's own head and embedding.

Limits (SGLang 0.5.23): `models/dspark.py` sizes both Markov matrices with `vocab_size` and takes head and embedding from
the target; `build_markov_head` needs a rank above 0; `dflash_utils.py` (`resolve_target_layer_ids`) takes ids from 0 to
the depth minus one, and the model hooks capture the input of layer id + 1, in layer order.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.errors import RefusedError
from speculators_convert.layouts.assemble import Draft, assemble
from speculators_convert.layouts.base import Options
from speculators_convert.layouts.borrowed import BORROWED
from speculators_convert.layouts.native_config import native_config
from speculators_convert.layouts.parts import copied, dropped
from speculators_convert.layouts.refusals import NO_MAPPING, TABLE_ROLES, demand_portable
from speculators_convert.layouts.speculators import owned_notes
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.spec import Anchor, AttentionKind, DraftSpec, MarkovKind, known
from speculators_convert.target.pairing import Pairing

_LEFT_OUT = {**dict.fromkeys(BORROWED, "SGLang takes it from the target and skips it in the file"), **dict.fromkeys(TABLE_ROLES, NO_MAPPING)}


class SglangLayout:
    """Flat config, output layer ids, `block_size` is gamma, no head and no embedding."""

    name = "sglang"
    title = "Flat native for stock SGLang 0.5.23"
    compares_heads = False

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """Keep each role but head and embedding; refuse a reduced vocabulary."""
        demand_portable(spec, checkpoint, options.tables)
        if spec.reduced_vocabulary:
            raise RefusedError(
                "stock SGLang cannot serve a reduced draft vocabulary",
                where="draft_vocab_size",
                measured=spec.draft_vocab_size,
                expected=f"{spec.target_vocab_size}, the target's",
                hint="use --layout sglang-dense --target REF, which rewrites it over the target's vocabulary",
            )
        refuse_unservable(spec, options.pairing)
        parts = [copied(role, ref) for role, ref in spec.tensors.items() if role not in _LEFT_OUT]
        unused = [dropped(ref, _LEFT_OUT[role]) for role, ref in spec.tensors.items() if role in _LEFT_OUT]
        notes = [*owned_notes(spec, options.pairing), *serving_notes(spec)]
        return assemble(Draft(self.name, native_config(spec), parts, unused, notes, tp=options.tp, copy_code=options.copy_code), spec, checkpoint)


def refuse_unservable(spec: DraftSpec, pairing: Pairing | None) -> None:
    """`RefusedError` for the first thing that stock SGLang cannot run."""
    for where, measured, expected, hint in _limits(spec, pairing):
        raise RefusedError("stock SGLang cannot serve this draft", where=where, measured=measured, expected=expected, hint=hint)


def _limits(spec: DraftSpec, pairing: Pairing | None) -> Iterator[tuple[str, object, str, str]]:
    ids = known(spec.target_layer_ids, "target_layer_ids")
    hidden = known(spec.hidden_size, "hidden_size")
    depth = (pairing.num_hidden_layers if pairing else None) or spec.num_target_layers
    length = pairing.max_position_embeddings if pairing else None
    if spec.markov is None:
        yield "markov_rank", 0, "a Markov head", "serve it with an engine that takes a draft without one"
    if min(ids) < 0:
        yield "target_layer_ids", list(ids), "no -1: SGLang does not capture the embeddings", "train the draft on layer outputs only"
    if list(ids) != sorted(set(ids)):
        yield "target_layer_ids", list(ids), "ascending ids: SGLang captures in layer order", "the columns of fc.weight follow the order of the ids; train with ascending ids"
    if depth is not None and max(ids) >= depth - 1:
        yield "target_layer_ids", list(ids), f"ids below {depth - 1}: SGLang captures the input of the next layer", "train the draft on earlier layers"
    if spec.target_hidden_size not in (None, hidden):
        yield "hidden_size", hidden, f"{spec.target_hidden_size}, the target's: the embedding is shared", "use a draft as wide as its target"
    if pairing and pairing.hidden_size not in (None, hidden):
        yield "hidden_size", hidden, f"{pairing.hidden_size}, the target's: the embedding is shared", "pass the target that the draft was trained for"
    if pairing and pairing.vocab_size is not None and known(spec.target_vocab_size, "vocab_size") > pairing.vocab_size:
        yield "vocab_size", spec.target_vocab_size, f"at most {pairing.vocab_size}, the target's", "pass the target that the draft was trained for"
    if spec.hidden_act not in (None, "silu"):
        yield "hidden_act", spec.hidden_act, "silu", "the DFlash block of SGLang has no other activation"
    if AttentionKind.SLIDING in known(spec.layer_types, "layer_types") and spec.sliding_window is None:
        yield "sliding_window", "nothing", "a window, because there are sliding layers", "pass --set sliding_window=N"
    if length is not None and known(spec.max_position_embeddings, "max_position_embeddings") < length:
        yield (
            "max_position_embeddings",
            spec.max_position_embeddings,
            f"at least {length}, the target's",
            f"pass --set max_position_embeddings={length} if the draft may run that far",
        )


def serving_notes(spec: DraftSpec) -> Iterator[str]:
    """What a user of stock SGLang should know."""
    if spec.anchor is Anchor.BONUS:
        yield (
            "with a bonus anchor, serve with --speculative-draft-attention-backend triton or flashinfer: "
            "the FA3 draft backend of SGLang 0.5.19 to 0.5.23 assumes gamma rows, not gamma + 1"
        )
        if spec.markov and spec.markov.kind is MarkovKind.RNN:
            yield (
                "with a bonus anchor and a recurrent head, SGLang starts the recurrence at the first sampled slot, while the draft was trained "
                "with one step more, on the anchor's slot: its proposals will be accepted less often"
            )
    if spec.confidence is None:
        yield "without a confidence head, only SGLANG_RAGGED_VERIFY_MODE=static (the default) works"
    if spec.layer_types and AttentionKind.SLIDING in spec.layer_types:
        yield (
            "SGLang counts the window of a sliding layer from each slot and includes the slot; the draft was trained with a window "
            f"counted from the anchor, so the last slot sees {spec.query_slots} context tokens fewer"
        )


LAYOUT = SglangLayout()
