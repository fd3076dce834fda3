"""DSP200 to DSP229: config values, the anchor, the block, the tapped layers and the mask token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.conflicts import disagreement
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG, backbone
from speculators_convert.findings import Problem
from speculators_convert.formats import Reading
from speculators_convert.model import Severity
from speculators_convert.spec import Anchor, DraftSpec

_TOKENS = "proposal_methods"
_TAP_KEYS = "target_layer_ids (or aux_hidden_state_layer_ids, one higher)"


@check("DSP201", "Config values have the right type and range")
def values_typed(reading: Reading) -> Iterator[Problem]:
    """
    ## What it checks
    Each key that the format defines holds a value of its type and in its range.

    ## Why it matters
    Loaders convert silently: the string "false" is true, a list where a number belongs fails far from its cause, a negative id wraps around.

    ## How to fix
    Write the value in the type that the message names.

    ## Reported in
    hf-mem and AIConfigurator reviews (unbounded and silently defaulted draft keys)
    """
    yield from reading.problems


@check("DSP202", "It is decided whether the anchor slot is sampled")
def anchor_decided(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The file says, by `sample_from_anchor` or by `speculative_tokens` against `block_size`, whether slot 0 of a block predicts the next token.

    ## Why it matters
        Engines fill the gap with opposite defaults (vLLM's Speculators path false, native paths true). The wrong one shifts every drafted token by
    one: no error, acceptance length near 1.1. Weights cannot tell.

    ## How to fix
        State it with `--set sample_from_anchor=true` (block_size tokens are drafted) or `--set sample_from_anchor=false` (one fewer); the trainer's
    config decides, or `spec-convert probe` with the target.

    ## Reported in
    sglang#40144, vllm#56792, sglang-jax#1619, vllm#49614
    """
    if spec.anchor is None:
        yield Problem(
            "it is not decided whether the anchor slot is sampled",
            subject="sample_from_anchor",
            measured="no key, and speculative_tokens against block_size does not tell",
            expected="sample_from_anchor true or false",
            file=CONFIG,
            pointer="/sample_from_anchor",
        )


@check("DSP203", "Drafted tokens, block size and anchor fit together")
def tokens_fit(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    `speculative_tokens` equals the number of sampled slots: `block_size` when the anchor is sampled, one fewer when it is not.

    ## Why it matters
    One of the three values is wrong. If it is the anchor, each drafted token stands one place off; if it is the count, the engine drafts slots that were never trained.

    ## How to fix
    Find out which value is wrong. If it is the anchor, pass `--set sample_from_anchor=true|false`; if it is the count, pass `--set gamma=N`.

    ## Reported in
    sglang#40144, speculators#456 (count was one too high before 2026-04-21), vllm PR#41834
    """
    by_key = disagreement(spec, "anchor")
    if by_key is not None:
        yield by_key
    elif spec.speculative_tokens is not None and spec.gamma is not None and spec.speculative_tokens != spec.gamma:
        slots_counted = spec.speculative_tokens == spec.query_slots and spec.markov is None and "sample_from_anchor" not in checkpoint.config
        yield Problem(
            "speculative_tokens counts slots, as DFlash exports did before 2026-04-21" if slots_counted else "speculative_tokens is not the number of sampled slots",
            subject="speculative_tokens",
            measured=spec.speculative_tokens,
            expected=f"{spec.gamma} ({spec.query_slots} slots, anchor {spec.anchor})",
            file=CONFIG,
            severity=Severity.INFO if slots_counted else None,
        )


@check("DSP204", "A block drafts at least one token")
def gamma_known(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `block_size` is there and leaves at least one sampled slot.

    ## Why it matters
    SGLang falls back to 7 with a warning when it cannot read the block size, llama.cpp to 16: the draft then runs with slots that were never trained.

    ## How to fix
    Restore `block_size`, or state the number of drafted tokens with `--set gamma=N`.

    ## Reported in
    SGLang 0.5.23 `speculative_hook.py` (default 7), llama.cpp#26275 (default 16)
    """
    decided = next((item for item in spec.evidence if item.fact == "gamma" and item.decides), None)
    expected = "block_size of at least 1, or 2 when the anchor is not sampled"
    if spec.anchor is not None and not spec.gamma:
        yield Problem(
            "the number of drafted tokens per block is not known",
            subject="block_size",
            measured=f"slots: {spec.query_slots}",
            expected=expected,
            file=CONFIG,
            pointer="/block_size",
        )
    elif decided is not None and _TOKENS in decided.source:
        yield Problem(
            "block_size leaves it to speculative_tokens how many tokens are drafted",
            subject="block_size",
            measured=f"{decided.says} by speculative_tokens",
            expected=expected,
            file=CONFIG,
            pointer="/block_size",
        )


@check("DSP205", "The build did not misalign the Markov head", severity=Severity.WARNING)
def markov_aligned(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The file does not come from a development build between the two fixes of July 2026 with a sampled anchor and a Markov head.

    ## Why it matters
    Builds from 2026-07-13 to 07-17 trained the Markov head on the previous token of the wrong slot when the anchor is sampled. The tensors do not show it.

    ## How to fix
    Train again with 0.7.0 or later, or measure the acceptance length before use.

    ## Reported in
    speculators#760, speculators#806
    """
    version = spec.producer_version or ""
    if version.startswith("0.7.0.dev") and spec.anchor is Anchor.SAMPLED and spec.markov is not None:
        yield Problem(
            "a development build of 0.7.0 may have trained the Markov head misaligned",
            subject="speculators_version",
            measured=version,
            expected="a release, or a build after 2026-07-17",
            file=CONFIG,
            pointer="/speculators_version",
        )


@check("DSP206", "The block size is stated once")
def block_stated_once(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The config does not state two block sizes, one nested and one at the top.

    ## Why it matters
    `block_size` decides how many tokens are drafted per step; SGLang reads the nested key first, others the top one.

    ## How to fix
    Keep one value, or state the number of drafted tokens with `--set gamma=N`.

    ## Reported in
    SGLang 0.5.23 `parse_dspark_draft_config`
    """
    problem = disagreement(spec, "gamma")
    if problem is not None and _TOKENS not in f"{problem.measured}{problem.expected}":
        yield problem


@check("DSP207", "No second reading is possible", severity=Severity.INFO)
def undisputed(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    No engine or tool is known to read the same file in another way than this tool does.

    ## Why it matters
    The file leaves a fact to a default, and defaults differ. The reading shown is the trainer's; an engine with the other default drafts one place off, without an error.

    ## How to fix
    State the fact with the `--set` flag that the evidence names; the rewritten file then says it for all engines.

    ## Reported in
    sglang#40144, sglang#40203, vllm#56792, llama.cpp#26275
    """
    for item in spec.evidence:
        if item.fact.endswith("_disputed"):
            fact = item.fact.removesuffix("_disputed")
            decided = next((other.says for other in spec.evidence if other.fact == fact and other.decides), "not decided")
            yield Problem(f"{fact} can be read in two ways", subject=fact, measured=f"{item.says}: {item.source}", expected=decided)


@check("DSP208", "The number of drafted tokens is stated", severity=Severity.INFO)
def tokens_stated(spec: DraftSpec, format_name: str) -> Iterator[Problem]:
    """
    ## What it checks
    A Speculators file states `speculative_tokens` in its first proposal method.

    ## Why it matters
    `vllm serve DRAFT` refuses a file without it, and it is the second witness for how the anchor slot is used.

    ## How to fix
    Restore `speculators_config.proposal_methods`; `spec-convert normalize` writes it.

    ## Reported in
    vLLM 0.33.0 `speculators/base.py` (validate_speculators_config)
    """
    if format_name == "speculators" and spec.speculative_tokens is None:
        pointer = "/speculators_config/proposal_methods/0/speculative_tokens"
        yield Problem("speculative_tokens is not stated", subject="speculative_tokens", measured="no value", expected="the number of sampled slots", file=CONFIG, pointer=pointer)


@check("DSP210", "The tapped layers are listed")
def taps_listed(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The config lists the target layers whose outputs the draft reads.

    ## Why it matters
    Engines fill an absent list by a formula. `fc` was trained on other layers, so the draft runs on inputs that it has never seen, without an error.

    ## How to fix
    Restore the list from the training config, or state it with `--set target_layer_ids=[...]` (outputs of layers, counted from 0).

    ## Reported in
    z-lab/dflash#156, z-lab/dflash#157 (made mandatory), SGLang 0.5.23 (formula when absent)
    """
    if spec.target_layer_ids is None:
        yield Problem("the tapped layers are not listed", subject="target_layer_ids", measured="no list", expected=_TAP_KEYS, file=CONFIG)


@check("DSP211", "No layer is tapped twice")
def taps_unique(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Each layer id stands once in the list.

    ## Why it matters
    Engines capture a layer once; a repeated id makes the concatenated input shorter than `fc` expects, or repeats one layer where another was trained.

    ## How to fix
    Restore the list from the training config.

    ## Reported in
    NeMo AutoModel `serve_sglang` (validates ids), deepseek-ai/DeepSpec (strictly increasing)
    """
    twice = sorted(item for item, count in Counter(spec.target_layer_ids or ()).items() if count > 1)
    if twice:
        yield Problem("layer ids are repeated", subject="target_layer_ids", measured=f"{twice} in {list(spec.target_layer_ids or ())}", expected="each id once", file=CONFIG)


@check("DSP212", "Tapped layers ascend", requires=("DSP211",))
def taps_ascend(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The list of layer ids ascends.

    ## Why it matters
        Engines emit captured states in layer order, whatever the order of the list. With another order in training, the blocks of `fc` meet the wrong
    layers: it loads and accepts less.

    ## How to fix
    If the list was edited, restore it. If the draft was trained in this order, permute the column blocks of `fc.weight` and sort the list.

    ## Reported in
    SGLang 0.5.23 `models/qwen3.py` (captures in layer order), deepseek-ai/DeepSpec (strictly increasing)
    """
    ids = spec.target_layer_ids or ()
    if list(ids) != sorted(ids):
        yield Problem("the layer ids do not ascend", subject="target_layer_ids", measured=list(ids), expected=sorted(ids), file=CONFIG)


@check("DSP213", "Layer ids lie inside the target")
def taps_in_range(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Each id, as the output of a layer, is at least -1 (the embeddings) and less than the depth that the file states, if it states one.

    ## Why it matters
    SGLang refuses such an id, others index from the end of the list. Mostly the list is in the other convention (Speculators' ids are one higher).

    ## How to fix
    Correct the list; Speculators' `aux_hidden_state_layer_ids` start at 0 for the embeddings, `target_layer_ids` at -1.

    ## Reported in
    sglang#30982, sglang#34734, NeMo AutoModel `serve_sglang` (warns on -1 and N-1)
    """
    depth = spec.num_target_layers
    outside = [item for item in spec.target_layer_ids or () if item < -1 or (depth is not None and item >= depth)]
    if outside:
        yield Problem("layer ids leave the target", subject="target_layer_ids", measured=outside, expected="-1 or more" if depth is None else f"-1 to {depth - 1}", file=CONFIG)


@check("DSP214", "fc is as wide as the tapped layers")
def taps_fit_fc(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The columns of `fc.weight` are the number of tapped layers times the target's hidden size.

    ## Why it matters
    `fc` takes the tapped states side by side. Another width means that ids were lost or added since training.

    ## How to fix
    Restore the list of ids; its length must be the columns of `fc.weight` over the target's hidden size.

    ## Reported in
    SGLang 0.5.23 `dflash.py` (fc shape check), speculators DFlash converter (drops an id without slicing fc)
    """
    ref, width = spec.tensors.get("fc.weight"), spec.target_hidden_size or spec.hidden_size
    if ref is None or len(ref.shape) != 2 or not width or spec.target_layer_ids is None:
        return
    expected = len(spec.target_layer_ids) * width
    if ref.shape[1] != expected:
        yield Problem(
            "fc.weight does not fit the tapped layers",
            subject="fc.weight",
            measured=f"{ref.shape[1]} columns",
            expected=f"{expected} ({len(spec.target_layer_ids)} layers of {width})",
            file=ref.file,
        )


@check("DSP220", "The mask token is there and inside the vocabulary")
def mask_present(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `mask_token_id` is stated and less than the target's vocabulary size.

    ## Why it matters
    It fills the empty slots of each block. Without it engines stop, or take 0; an id outside the embedding is an out-of-bounds read.

    ## How to fix
    Restore the id of the training run, or state it with `--set mask_token_id=N`.

    ## Reported in
    SGLang 0.5.23 (mask set and less than V), TorchSpec#133 (placeholder id)
    """
    mask, vocab = spec.mask_token_id, spec.target_vocab_size
    if mask is None:
        yield Problem("there is no mask token", subject="mask_token_id", measured="not stated", expected="an id of the target's vocabulary", file=CONFIG)
    elif vocab is not None and mask >= vocab:
        yield Problem("the mask token is outside the vocabulary", subject="mask_token_id", measured=mask, expected=f"0 to {vocab - 1}", file=CONFIG)


@check("DSP222", "The mask token is not another special token", severity=Severity.WARNING)
def mask_distinct(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The mask token is none of the config's bos, eos and pad ids.

    ## Why it matters
    Those tokens have a meaning in the context; a draft trained with a reserved mask token and served with one of them accepts far less.

    ## How to fix
    Restore the mask id of the training run, or state it with `--set mask_token_id=N`.

    ## Reported in
    TorchSpec#133 (placeholder mask), mlx-dspark (mask rules per packaging)
    """
    table, pointer = backbone(checkpoint)
    if spec.mask_token_id is None:
        return
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = table.get(key)
        if spec.mask_token_id in (value if isinstance(value, list) else [value]):
            yield Problem(
                f"the mask token is also {key}",
                subject="mask_token_id",
                measured=spec.mask_token_id,
                expected="a reserved token of its own",
                file=CONFIG,
                pointer=f"{pointer}/{key}",
            )
