"""Does a draft fit a target, and the prompts both? Each misfit is an error that names both numbers."""

from __future__ import annotations

from collections.abc import Sequence

from speculators_convert.errors import SmokeError
from speculators_convert.smoke.engine.target import Target
from speculators_convert.spec import DraftSpec, expected_shapes, known

_OTHER_TARGET = "pass the target that the draft was trained for"


def demand_fit(spec: DraftSpec, target: Target) -> None:
    """Vocabulary, width, tensors and mask token of the draft against the target."""
    _demand_equal("the vocabularies differ", "target_vocab_size", target.vocab_size, known(spec.target_vocab_size, "vocab_size"))
    width = int(target.config.hidden_size)
    _demand_equal("the hidden sizes differ", "target_hidden_size", width, known(spec.target_hidden_size or spec.hidden_size, "target_hidden_size"))
    if "embed_tokens.weight" not in spec.tensors:
        _demand_equal("the draft borrows an embedding of another width", "hidden_size", int(target.shared.embedding.shape[1]), known(spec.hidden_size, "hidden_size"))
    if not spec.reduced_vocabulary and "lm_head.weight" not in spec.tensors:
        _demand_equal("the draft borrows a head of another width", "hidden_size", int(target.shared.head.shape[1]), known(spec.hidden_size, "hidden_size"))
    mask, rows = known(spec.mask_token_id, "mask_token_id"), int(target.shared.embedding.shape[0])
    if mask >= rows:
        raise SmokeError("the mask token has no embedding", where="mask_token_id", measured=mask, expected=f"below {rows}", hint=_OTHER_TARGET)
    _demand_tensors(spec)


def demand_prompts(prompts: Sequence[Sequence[int]], target: Target, max_new_tokens: int) -> None:
    """Token ids inside the vocabulary, and lengths inside the target's positions."""
    demand_tokens(prompts, target)
    limit = getattr(target.config, "max_position_embeddings", None)
    for number, prompt in enumerate(prompts, 1):
        if limit is not None and len(prompt) + max_new_tokens > limit:
            raise SmokeError(
                "prompt and output are longer than the target's positions",
                where=f"prompt {number}",
                measured=len(prompt) + max_new_tokens,
                expected=f"at most {limit}",
                hint="use shorter prompts or a smaller --max-new-tokens",
            )


def demand_tokens(prompts: Sequence[Sequence[int]], target: Target) -> None:
    """Token ids inside the vocabulary."""
    for number, prompt in enumerate(prompts, 1):
        if max(prompt) >= target.vocab_size:
            raise SmokeError(
                "a token id has no embedding in the target",
                where=f"prompt {number}",
                measured=max(prompt),
                expected=f"below {target.vocab_size}",
                hint="the prompts are for another tokenizer",
            )


def _demand_equal(what: str, where: str, measured: int, expected: int) -> None:
    if measured != expected:
        raise SmokeError(f"draft and target do not fit: {what}", where=where, measured=f"{measured} in the target", expected=f"{expected} by the draft", hint=_OTHER_TARGET)


def _demand_tensors(spec: DraftSpec) -> None:
    for role, shape in expected_shapes(spec).items():
        ref = spec.tensors.get(role)
        if ref is None and role != "t2d":
            raise SmokeError("a tensor of the draft is missing", where=role, measured="missing", expected=str(list(shape)), hint="run inspect for the reason")
        if ref is not None and (len(ref.shape) != len(shape) or any(want is not None and want != have for want, have in zip(shape, ref.shape, strict=True))):
            raise SmokeError("a tensor of the draft has another shape", where=role, measured=list(ref.shape), expected=str(list(shape)), hint="run inspect for the reason")
