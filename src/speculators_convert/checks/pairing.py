"""DSP7xx: the draft against the target that it is to run with."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG
from speculators_convert.findings import Problem
from speculators_convert.model import JsonValue, Severity
from speculators_convert.spec import DraftSpec
from speculators_convert.target.pairing import Pairing, text_config

_PLAIN = {"BF16", "F16", "F32"}


@check("DSP701", "Draft and target have one vocabulary")
def vocabularies_equal(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The draft's target_vocab_size is the target's `vocab_size`, or the number of rows of its embedding when that is padded.

    ## Why it matters
    Ids mean tokens only in one vocabulary. A draft of another model of the family loads and proposes other tokens.

    ## How to fix
    Use the target that the draft was trained for.

    ## Reported in
    vllm PR#55133 (padded vocabularies), mlxcel#1751 (pairing gate)
    """
    rows = pairing.embed.tensor.shape[0] if pairing.embed and pairing.embed.tensor.shape else None
    sizes = [size for size in (pairing.vocab_size, rows) if size is not None]
    if spec.target_vocab_size is None or not sizes:
        return
    if spec.target_vocab_size not in sizes:
        yield Problem(
            "draft and target have different vocabularies",
            subject="vocab_size",
            measured=f"draft {spec.target_vocab_size}",
            expected=f"target {pairing.vocab_size} ({rows} embedding rows)",
            file=CONFIG,
        )


@check("DSP702", "Draft and target have one hidden size")
def hidden_sizes_equal(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The target's hidden size is the one that `fc` was trained on, and equals the draft's own, as the draft uses the target's embedding and head.

    ## Why it matters
    Embedding and head are shared: with another width the draft cannot run.

    ## How to fix
    Use the target that the draft was trained for.

    ## Reported in
    SGLang 0.5.23 `dflash.py`, vllm-metal#766
    """
    if pairing.hidden_size is None:
        return
    for name, size in (("target_hidden_size", spec.target_hidden_size), ("hidden_size", spec.hidden_size)):
        if size is not None and size != pairing.hidden_size:
            yield Problem("draft and target have different hidden sizes", subject=name, measured=f"draft {size}", expected=f"target {pairing.hidden_size}", file=CONFIG)


@check("DSP703", "Tapped layers exist in the target")
def taps_exist(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Each tapped layer, as the output of a layer, is less than the target's depth.

    ## Why it matters
    SGLang refuses an id past the end; an engine that wraps or clamps taps another layer.

    ## How to fix
    Use the target that the draft was trained for, or correct the convention of the ids.

    ## Reported in
    sglang#34734, sglang#30982
    """
    depth = pairing.num_hidden_layers
    outside = [item for item in spec.target_layer_ids or () if depth is not None and item >= depth]
    if outside:
        yield Problem("tapped layers do not exist in the target", subject="target_layer_ids", measured=outside, expected=f"-1 to {(depth or 0) - 1}", file=CONFIG)


@check("DSP704", "The stated depth is the target's", severity=Severity.WARNING)
def depth_equal(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    `num_target_layers`, when stated, is the target's number of layers.

    ## Why it matters
    SGLang only warns. The draft was then trained for a model of another depth, or the key has the meaning of another trainer.

    ## How to fix
    Correct the key, or use the target that the draft was trained for.

    ## Reported in
    SGLang 0.5.23 (warns), TorchSpec (the key counts the taps there)
    """
    if None not in (spec.num_target_layers, pairing.num_hidden_layers) and spec.num_target_layers != pairing.num_hidden_layers:
        yield Problem("the stated depth is not the target's", subject="num_target_layers", measured=spec.num_target_layers, expected=pairing.num_hidden_layers, file=CONFIG)


@check("DSP705", "The target's head is not tied", severity=Severity.INFO)
def head_tied(pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Whether the target uses its embedding as its head.

    ## Why it matters
    A draft that borrows the head then borrows the embedding; head rows are compared with embedding rows.

    ## How to fix
    Nothing to do.

    ## Reported in
    mergekit#390, Edge-LLM#200
    """
    if pairing.tie_word_embeddings:
        yield Problem("the target's head is its embedding", subject="tie_word_embeddings", measured="true", expected="rows compared with the embedding")


@check("DSP706", "The target's head can be shared", severity=Severity.WARNING)
def head_plain(pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The target has an `lm_head` (or a tied embedding) in a plain floating-point type.

    ## Why it matters
    A draft without its own head multiplies by the target's. A packed or quantized one is not supported by every version, and its rows cannot be compared with the draft's.

    ## How to fix
    Serve with an engine version that supports a quantized head, or with a target whose head is not quantized.

    ## Reported in
    SGLang 0.5.17 (plain matmul over the target's head), vLLM-metax#337
    """
    if pairing.head is None:
        if pairing.target.tensors:
            yield Problem("the target has no plain head", subject="lm_head.weight", measured="no such tensor", expected="lm_head.weight, or tied embeddings")
    elif pairing.head.tensor.dtype not in _PLAIN or len(pairing.head.tensor.shape) != 2:
        yield Problem(
            "the target's head is packed or quantized",
            subject=pairing.head.tensor.name,
            measured=f"{pairing.head.tensor.dtype} {list(pairing.head.tensor.shape)}",
            expected="BF16, F16 or F32 with two dimensions",
            file=pairing.head.file,
        )


@check("DSP707", "The draft's context is as long as the target's", severity=Severity.WARNING)
def context_long_enough(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    `max_position_embeddings` of the draft is at least the target's.

    ## Why it matters
    SGLang starts the draft with the target's context length and refuses a shorter one; elsewhere positions past the draft's table are extrapolated.

    ## How to fix
    Serve with a context length of at most the draft's, or state `--set max_position_embeddings=N` when the draft's rotary embedding was trained for it.

    ## Reported in
    SGLang 0.5.23 `model_config.py` (derived context length)
    """
    mine, theirs = spec.max_position_embeddings, pairing.max_position_embeddings
    if mine is not None and theirs is not None and mine < theirs:
        yield Problem("the draft's context is shorter than the target's", subject="max_position_embeddings", measured=f"draft {mine}", expected=f"at least {theirs}", file=CONFIG)


@check("DSP708", "Rope parameters of draft and target", severity=Severity.INFO)
def rope_compared(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Whether the draft's rope theta and type equal the target's. It is reported and never overwritten.

    ## Why it matters
    Most drafts are trained with the target's values, so a difference is often a lost key; but a draft may have its own.

    ## How to fix
    Nothing, when the training config has this value; else state it with `--set rope_theta=...`.

    ## Reported in
    modelopt PR#2221, Lucebox#447
    """
    theta, kind = _rope(text_config(dict(pairing.target.config)))
    if theta is not None and spec.rope.theta is not None and theta != spec.rope.theta:
        yield Problem("draft and target have different rope theta", subject="rope_theta", measured=f"draft {spec.rope.theta}", expected=f"target {theta}", file=CONFIG)
    if kind is not None and kind != spec.rope.type:
        yield Problem("draft and target have different rope types", subject="rope_type", measured=f"draft {spec.rope.type}", expected=f"target {kind}", file=CONFIG)


@check("DSP709", "The target is of the verifier's class", severity=Severity.WARNING)
def verifier_class(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The architecture that the draft names for its verifier is the target's.

    ## Why it matters
    Another class is another model: its hidden states mean something else, even when all sizes agree.

    ## How to fix
    Use the target that the draft was trained for, or correct the label.

    ## Reported in
    speculators#613 (verifier.architectures empty)
    """
    named, actual = set(spec.verifier.architectures), set(pairing.architectures)
    if named and actual and not named & actual:
        yield Problem(
            "the draft was trained for another class of target",
            subject="verifier",
            measured=", ".join(sorted(actual)),
            expected=", ".join(sorted(named)),
            file=CONFIG,
            pointer="/speculators_config/verifier/architectures",
        )


@check("DSP710", "The mask token is reserved in the target's tokenizer", severity=Severity.WARNING, requires=("DSP220",))
def mask_reserved(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The mask token is not the target's bos, eos or pad, and is no token that ordinary text uses.

    ## Why it matters
    The mask fills the empty slots of a block. An ordinary token there is the trace of a placeholder that was never set; the right mask of the training run accepts more.

    ## How to fix
    Restore the id of the training run, or state it with `--set mask_token_id=N`; `spec-convert probe` compares candidates.

    ## Reported in
    TorchSpec#133 (placeholder mask), mlx-dspark (mask rules per packaging)
    """
    mask, tokenizer = spec.mask_token_id, pairing.tokenizer
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if mask is not None and mask in _special_ids(pairing, key):
            yield Problem(
                f"the mask token is the target's {key}", measured=mask, expected="a reserved token of its own", subject="mask_token_id", file=CONFIG, pointer="/mask_token_id"
            )
            return
    if mask is not None and tokenizer is not None and mask in tokenizer.text and mask not in tokenizer.special:
        yield Problem(
            "the mask token is an ordinary token",
            measured=f"{mask} is {tokenizer.text[mask]!r:.60}",
            expected="a reserved or an added token",
            subject="mask_token_id",
            file=CONFIG,
            pointer="/mask_token_id",
        )


@check("DSP711", "The tokenizer fits the vocabulary", severity=Severity.WARNING)
def tokenizer_fits(spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    The target's tokenizer has no id past the draft's target vocabulary.

    ## Why it matters
    Such a token indexes `markov_w1` and the embedding out of bounds as soon as a prompt contains it.

    ## How to fix
    Use the tokenizer and the target that the draft was trained for.

    ## Reported in
    vllm PR#55133 (logical and padded vocabulary sizes)
    """
    if pairing.tokenizer is not None and spec.target_vocab_size is not None and pairing.tokenizer.size > spec.target_vocab_size:
        yield Problem(
            "the tokenizer has ids past the draft's vocabulary",
            subject="vocab_size",
            measured=f"ids up to {pairing.tokenizer.size - 1}",
            expected=f"less than {spec.target_vocab_size}",
            file=CONFIG,
        )


def _special_ids(pairing: Pairing, key: str) -> tuple[JsonValue, ...]:
    """Ids that the target's documents give for a key, alone or in a list."""
    documents = (pairing.target.documents.get(name) for name in ("config.json", "generation_config.json"))
    values = [text_config(document).get(key) for document in documents]
    return tuple(item for value in values for item in (value if isinstance(value, list) else [value]) if type(item) is int)


def _rope(config: dict[str, JsonValue]) -> tuple[float | None, str | None]:
    """Theta and type of the target, in the new or the old spelling; None where it states neither."""
    parameters = config.get("rope_parameters")
    table = parameters if isinstance(parameters, dict) else {}
    scaling = config.get("rope_scaling")
    older = scaling if isinstance(scaling, dict) else {}
    theta = table.get("rope_theta", config.get("rope_theta"))
    kind = table.get("rope_type") or older.get("rope_type") or older.get("type")
    return (float(theta) if isinstance(theta, (int, float)) else None), (kind if isinstance(kind, str) else None)
