"""DSP260 to DSP279: labels of the file: verifier, architecture, tie flag, dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.conflicts import disagreement
from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG
from speculators_convert.findings import Problem
from speculators_convert.model import Severity
from speculators_convert.spec import DraftSpec

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PATH = re.compile(r"^(/|~|\.\.?/|[A-Za-z]:\\|file:)|/.*/|\\")
_NAME_POINTER = "/speculators_config/verifier/name_or_path"


@check("DSP260", "The verifier is named so that others can find it", severity=Severity.WARNING)
def verifier_named(spec: DraftSpec, format_name: str) -> Iterator[Problem]:
    """
    ## What it checks
    A Speculators file names its target by a Hub id. A path is a warning, a bare word only a note.

    ## Why it matters
    `vllm serve DRAFT` takes this name as the model to load: the path of a training machine fails, or loads another model of that path.

    ## How to fix
    State the Hub id with `--set verifier=ORG/NAME` when rewriting, or pass the target explicitly when serving.

    ## Reported in
    vLLM 0.33.0 `speculators/base.py`, speculators#613
    """
    name = spec.verifier.name_or_path
    if name is None:
        if format_name == "speculators":
            yield Problem("the verifier is not named", measured="no name_or_path", expected="the target's Hub id", subject="verifier", file=CONFIG, pointer=_NAME_POINTER)
    elif _PATH.search(name):
        yield Problem(
            "the verifier is named by a path of the training machine", measured=name, expected="a Hub id such as ORG/NAME", subject="verifier", file=CONFIG, pointer=_NAME_POINTER
        )
    elif not _HUB_ID.fullmatch(name):
        yield Problem(
            "the verifier is named by a bare word",
            measured=name,
            expected="a Hub id such as ORG/NAME",
            severity=Severity.INFO,
            subject="verifier",
            file=CONFIG,
            pointer=_NAME_POINTER,
        )


@check("DSP262", "The architecture label fits the weights", severity=Severity.WARNING, requires=(*UNREADABLE, "DSP304"))
def label_fits(spec: DraftSpec, format_name: str) -> Iterator[Problem]:
    """
    ## What it checks
        Labels (`architectures`, `projector_type`) and weights name the same algorithm: with Markov tables DSpark, without them DFlash. A Speculators
    or DeepSpec file with a Markov head and a DFlash label is a warning; where a producer always writes such a label it is only a note.

    ## Why it matters
    Engines choose the model class by this label. The DFlash class drops the Markov head and samples one slot fewer: it runs and accepts less.

    ## How to fix
    Set `architectures` to ["DSparkDraftModel"] (Speculators) or ["Qwen3DSparkModel"] (native); `spec-convert normalize` does it.

    ## Reported in
    sglang#40144 (mixed labels), a Qwen3.6-27B file labelled DFlashDraftModel with DSpark weights
    """
    problem = disagreement(spec, "algorithm")
    if problem is not None:
        mislabelled = spec.markov is not None and format_name in ("speculators", "deepspec")
        yield replace(problem, message="the labels name another algorithm than the weights", subject="architectures", file=CONFIG, severity=None if mislabelled else Severity.INFO)


@check("DSP263", "The tie flag does not contradict the head")
def tie_flag(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `tie_word_embeddings` is not true in a file that has its own head.

    ## Why it matters
    A loader that honours the flag replaces the saved head by the embedding: other rows, and with a reduced vocabulary another number of rows.

    ## How to fix
    Set `tie_word_embeddings` to false.

    ## Reported in
    mergekit#328, mergekit#385, mergekit#615 (tied and extra heads)
    """
    if spec.tie_word_embeddings:
        own = "lm_head.weight" in spec.tensors
        yield Problem(
            "tie_word_embeddings is true although the file has its own head" if own else "tie_word_embeddings is true in a draft, which borrows both tables from the target",
            subject="tie_word_embeddings",
            measured="true",
            expected="false",
            file=CONFIG,
            pointer="/tie_word_embeddings",
            severity=Severity.ERROR if own else Severity.WARNING,
        )


@check("DSP265", "The dtype is stated", severity=Severity.WARNING)
def dtype_stated(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The config states `dtype` (or the older `torch_dtype`).

    ## Why it matters
    SGLang takes float32 when it is absent and then narrows to float16, which overflows where bfloat16 does not.

    ## How to fix
    Set `dtype` to the weights' dtype; `spec-convert normalize` does it.

    ## Reported in
    SGLang 0.5.23 `model_config.py` `_get_and_verify_dtype`
    """
    stated = [item for item in spec.evidence if item.fact == "dtype" and item.source.startswith(CONFIG)]
    if not stated and spec.bundled is None and not checkpoint.gguf:
        yield Problem("the dtype is not stated", subject="dtype", measured="no key", expected=spec.dtype or "the weights' dtype", file=CONFIG, pointer="/dtype")
