"""DSP5xx: quantized drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG
from speculators_convert.findings import Problem
from speculators_convert.model import JsonValue, Severity
from speculators_convert.spec import DraftSpec
from speculators_convert.target.pairing import Pairing

_PLAIN = {"BF16", "F16", "F32", "F64"}
_DOCUMENTS = ("hf_quant_config.json", "quantization_config.json")


def _declared(checkpoint: Checkpoint) -> tuple[Mapping[str, JsonValue] | None, str]:
    config = checkpoint.config.get("quantization_config")
    if isinstance(config, dict) and config:
        return config, CONFIG
    for name in _DOCUMENTS:
        document = checkpoint.documents.get(name)
        if isinstance(document, dict) and document:
            return document, name
    return None, ""


def _method(declared: Mapping[str, JsonValue]) -> str:
    """The quantization that a block names, in either spelling; ModelOpt nests it."""
    inner = declared.get("quantization")
    table = inner if isinstance(inner, dict) else declared
    return str(table.get("quant_algo") or table.get("quant_method") or "not named")[:120]


def _matrices(spec: DraftSpec) -> list[str]:
    return [role for role in spec.tensors if role.endswith(".weight") and role.startswith(("layers.", "fc.", "markov_head.", "confidence_head.", "lm_head."))]


@check("DSP501", "Quantization of the draft is stated", severity=Severity.INFO)
def quantization_stated(checkpoint: Checkpoint, spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Whether the draft's weights are quantized, and how.

    ## Why it matters
    Support differs: vLLM's Speculators path does not forward a draft's quantization config, so a quantized draft of that packaging cannot be served there.

    ## How to fix
    Nothing to do; look at the engine verdicts.

    ## Reported in
    vllm#47584, vmlx-swift#243, rMLX#538
    """
    declared, file = _declared(checkpoint)
    if declared is not None and any(spec.tensors[role].dtype not in _PLAIN for role in _matrices(spec)):
        yield Problem("the draft is quantized", subject="quantization_config", measured=_method(declared), expected="known to the engine that serves it", file=file)


@check("DSP502", "Quantized weights have their scales")
def scales_present(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    Each weight stored in an 8-bit or smaller type has a scale tensor beside it.

    ## Why it matters
    Without the scale the values are off by orders of magnitude, and loaders that only cast do not notice.

    ## How to fix
    Restore the scales, or save the draft in bfloat16.

    ## Reported in
    vllm#47584, vLLM-metax#337
    """
    names = set(checkpoint.tensors)
    for role in _matrices(spec):
        ref = spec.tensors[role]
        base = ref.name.removesuffix(".weight")
        if ref.dtype not in _PLAIN and not any(name.startswith(base) and "scale" in name[len(base) :] for name in names):
            yield Problem("a quantized weight has no scale", subject=role, measured=ref.dtype, expected=f"{base}.weight_scale beside it", file=ref.file)


@check("DSP503", "Quantization of draft and target", severity=Severity.INFO)
def quantization_compared(checkpoint: Checkpoint, spec: DraftSpec, pairing: Pairing) -> Iterator[Problem]:
    """
    ## What it checks
    Whether draft and target are quantized in the same way.

    ## Why it matters
    They need not be. But one server has one set of quantized kernels loaded, and some versions apply the target's quantization to the draft.

    ## How to fix
    Nothing to do when the engine verdict is `loads`; look at the engine's log for the dtype of the draft.

    ## Reported in
    sglang#36677 (experts of target and draft in different dtypes), vLLM-metax#337
    """
    mine, _ = _declared(checkpoint)
    theirs, _ = _declared(pairing.target)
    methods = [_method(item) if item is not None else "none" for item in (mine, theirs)]
    if spec.bundled is None and methods[0] != methods[1]:
        yield Problem("draft and target are quantized differently", subject="quantization_config", measured=f"draft {methods[0]}", expected=f"target {methods[1]}", file=CONFIG)


@check("DSP504", "Declared quantization is there", severity=Severity.WARNING)
def declared_is_real(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    A file that declares a quantization has at least one quantized weight.

    ## Why it matters
    The block was usually copied from the target's config. Engines then build quantized layers and look for scales that are not there.

    ## How to fix
    Remove `quantization_config` from the draft's config; `spec-convert normalize` does not copy it.

    ## Reported in
    sglang#36677 (target and draft differ in dtype)
    """
    declared, file = _declared(checkpoint)
    matrices = _matrices(spec)
    if declared is not None and matrices and spec.bundled is None and all(spec.tensors[role].dtype in _PLAIN for role in matrices):
        yield Problem(
            "a quantization is declared and no weight is quantized",
            subject="quantization_config",
            measured=str(declared.get("quant_method"))[:80],
            expected="no quantization_config in a plain draft",
            file=file,
        )
