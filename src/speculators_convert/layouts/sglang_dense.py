"""A reduced vocabulary written over the target's, so that stock SGLang serves it with the target's own head.

Speculators freezes a draft's head as a subset of the target's rows, so the target's head gives the same logits on the kept
ids. That is checked row by row here, not assumed. `dense_heads` says what becomes of the Markov and confidence heads.
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.errors import RefusedError, UsageError
from speculators_convert.layouts.assemble import Draft, assemble
from speculators_convert.layouts.base import Options
from speculators_convert.layouts.dense_heads import Widening
from speculators_convert.layouts.native_config import EXTRA_TABLE, native_config
from speculators_convert.layouts.parts import copied, dropped
from speculators_convert.layouts.refusals import demand_portable
from speculators_convert.layouts.sglang import refuse_unservable, serving_notes
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.runs import runs_of_ids
from speculators_convert.spec import D2T, DraftSpec, MarkovHead, known
from speculators_convert.target.head_comparison import HeadComparison
from speculators_convert.target.pairing import Pairing

MAX_RANK_PAD = 1024
_REPLACED = {
    "lm_head.weight": "each row equals the target's, which SGLang uses",
    "d2t": "the rows of markov_w2 stand at their target ids",
    "t2d": "the rows of markov_w2 stand at their target ids",
    "embed_tokens.weight": "SGLang takes it from the target",
}


class SglangDenseLayout:
    """The flat layout with a Markov head over the target's vocabulary."""

    name = "sglang-dense"
    title = "Flat native for stock SGLang 0.5.23, a reduced vocabulary written over the target's"
    compares_heads = True

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """Widen the heads, copy the rest; `RefusedError` when the target's head would not give the draft's logits."""
        demand_portable(spec, checkpoint, options.tables)
        pairing = _demand_target(options)
        _demand_reduced(spec)
        refuse_unservable(spec, pairing)
        _demand_same_head(spec, pairing, options.heads)
        widening = _widening(spec, options)
        kept = {role: ref for role, ref in spec.tensors.items() if role not in _REPLACED}
        parts = [widening.part(role, ref) or copied(role, ref) for role, ref in kept.items()]
        unused = [dropped(ref, _REPLACED[role]) for role, ref in spec.tensors.items() if role in _REPLACED]
        return assemble(
            Draft(self.name, _config(spec, widening), parts, unused, list(serving_notes(spec)), tp=options.tp, copy_code=options.copy_code), spec, checkpoint, target=pairing.target
        )


def _config(spec: DraftSpec, widening: Widening) -> dict[str, object]:
    markov = MarkovHead(kind=spec.markov.kind if spec.markov else None, rank=widening.rank + widening.pad)
    config = native_config(spec.model_copy(update={"markov": markov, "draft_vocab_size": spec.target_vocab_size, "d2t": D2T.NONE}))
    config[EXTRA_TABLE]["dense"] = {"markov_rank": widening.rank, "rank_pad": widening.pad, "draft_vocab_size": spec.draft_vocab_size}
    return config


def _widening(spec: DraftSpec, options: Options) -> Widening:
    targets = options.tables.targets(spec.d2t)
    vocabulary = known(spec.target_vocab_size, "vocab_size")
    ids = [] if targets is None else targets.tolist()
    if not 1 <= options.rank_pad <= MAX_RANK_PAD:
        raise UsageError("the pad must add columns", where="--rank-pad", measured=options.rank_pad, expected=f"1 to {MAX_RANK_PAD}")
    if len(ids) != spec.draft_vocab_size:
        raise RefusedError("d2t does not name a target id for each row", where="d2t", measured=len(ids), expected=spec.draft_vocab_size, hint="run inspect for the reason")
    rank = known(spec.markov.rank if spec.markov else None, "markov_rank")
    return Widening(rank, options.rank_pad, known(spec.hidden_size, "hidden_size"), vocabulary, runs_of_ids(ids, vocabulary), spec.confidence)


def _demand_target(options: Options) -> Pairing:
    if options.pairing is None:
        raise UsageError("this layout compares the draft's head with its target's", where="--layout sglang-dense", expected="a target", hint="pass --target REF")
    return options.pairing


def _demand_reduced(spec: DraftSpec) -> None:
    if not spec.reduced_vocabulary:
        raise RefusedError(
            "the draft has the target's whole vocabulary", where="draft_vocab_size", measured=spec.draft_vocab_size, expected="a reduced one", hint="use --layout sglang"
        )


def _demand_same_head(spec: DraftSpec, pairing: Pairing, heads: HeadComparison | None) -> None:
    """The target's head must give the draft's logits on the kept ids, and have exactly the draft's target vocabulary."""
    if pairing.vocab_size != spec.target_vocab_size:
        raise RefusedError(
            "the target has another vocabulary",
            where="vocab_size",
            measured=pairing.vocab_size,
            expected=spec.target_vocab_size,
            hint="pass the target that the draft was trained for",
        )
    if heads is None or heads.reason:
        reason = heads.reason if heads else "the heads were not compared"
        raise RefusedError(
            "the draft's head cannot be compared with the target's", where="lm_head.weight", measured=reason, expected="plain rows in both", hint="pass the unquantized target"
        )
    if not heads.equal:
        raise RefusedError(
            "the draft's head is not the target's, so the target's head would give other logits",
            where="lm_head.weight",
            measured=f"{heads.different_rows} of {heads.rows} rows differ, by up to {heads.largest:.3g}, first at draft id {heads.first_draft_id}",
            expected="each row equal to the target's through d2t",
            hint="pass the target that the draft was trained for, or serve the draft with an engine that reads d2t",
        )


LAYOUT = SglangDenseLayout()
