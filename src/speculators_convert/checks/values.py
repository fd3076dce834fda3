"""DSP6xx: the weights themselves, from one reading of all of them (`--deep`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from speculators_convert.checks.core import check
from speculators_convert.findings import Problem
from speculators_convert.model import Severity
from speculators_convert.spec import DraftSpec
from speculators_convert.values import RowComparison, Sample, TensorValues, ValueFacts

_ENOUGH_ELEMENTS = 4096
_INITIAL_DEVIATIONS = {"normal with deviation 0.02 (transformers' initializer_range)": 0.02, "normal with deviation 1 (torch.nn.Embedding)": 1.0}


@check("DSP601", "All weights are finite")
def weights_finite(values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
    No weight is NaN or infinite.

    ## Why it matters
        The Speculators library marks tables that it has not loaded with NaN: such a file was saved before the target's weights came in. Any NaN turns
    all logits into NaN, and drafts into noise.

    ## How to fix
    Save the draft again after the target's weights were loaded, or from an earlier step of the training run.

    ## Reported in
    speculators#962
    """
    for item in values.tensors:
        if item.not_finite:
            yield _at(
                item,
                f"{item.not_finite} values are NaN or infinite",
                measured=f"{item.not_finite} of {item.elements}, first at element {item.first_not_finite}",
                expected="finite values",
            )


@check("DSP602", "No weight is all zeros")
def weights_not_zero(values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
    No matrix and no norm is zero everywhere. Biases may be.

    ## Why it matters
    A zero matrix switches its part of the draft off: it was never written, or a loader filled a missing name.

    ## How to fix
    Restore the tensor from the training run.

    ## Reported in
    speculators#1114, sglang#32279
    """
    for item in values.tensors:
        if item.constant == 0 and not item.name.endswith(".bias"):
            yield _at(item, "all values are zero", measured=f"{item.elements} zeros", expected="trained values")


@check("DSP603", "No matrix is constant")
def weights_vary(values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
    No matrix has one value everywhere.

    ## Why it matters
    No training leaves a matrix constant: it is filler.

    ## How to fix
    Restore the tensor from the training run.

    ## Reported in
    speculators#1114
    """
    for item in values.tensors:
        if item.constant and len(item.shape) > 1 and item.elements > 1:
            yield _at(item, "all values are equal", measured=item.constant, expected="trained values")


@check("DSP604", "Weights were trained", severity=Severity.WARNING, requires=("DSP601",))
def weights_trained(values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
        No large matrix has exactly the distribution that initialisation leaves: normal with deviation 0.02 or 1, or uniform within 1/sqrt(inputs).
    Moments of evenly spaced elements are compared within their sampling error.

    ## Why it matters
    Loaders that miss a name keep the start values, and saving writes them. The draft runs and accepts almost nothing.

    ## How to fix
    Restore the tensor from the training run. If it was trained and only looks like this, nothing is wrong.

    ## Reported in
    sglang#32279, speculators#1114, speculators#1131
    """
    for item in values.tensors:
        if item.sample is None or len(item.shape) != 2 or item.elements < _ENOUGH_ELEMENTS:
            continue
        like = _initial(item.sample, item.shape[1])
        if like:
            yield _at(item, "the values look like a fresh initialisation", measured=like, expected="trained values")


@check("DSP605", "The embedding is the target's", requires=("DSP601",))
def embedding_equal(spec: DraftSpec, values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
    When the file has its own embedding, each row equals the target's.

    ## Why it matters
    Trainers freeze it. Engines that load the draft's copy then feed it other vectors than it was trained with, those that share the target's do not: one draft, two behaviours.

    ## How to fix
    Pair the draft with the target that it was trained for, or leave the table out (`spec-convert normalize --layout sglang`).

    ## Reported in
    speculators PR#962, makora-ai/gemma4-26b-a4b-dspark (card and file differ)
    """
    yield from _rows(spec, values, "embed_tokens.weight")


@check("DSP606", "The head is the target's", requires=("DSP601",))
def head_equal(spec: DraftSpec, values: ValueFacts) -> Iterator[Problem]:
    """
    ## What it checks
    When the file has its own head, each row equals the target's row of the id that `d2t` gives. DSP112 looks at a sample of them without reading all weights.

    ## Why it matters
    Trainers freeze the head. A row that differs scores one token by another token's vector.

    ## How to fix
    Pair the draft with the target that it was trained for, or restore the table of the training run.

    ## Reported in
    TorchSpec `tools/convert_to_hf.py`, speculators#1081
    """
    yield from _rows(spec, values, "lm_head.weight")


def _rows(spec: DraftSpec, values: ValueFacts, role: str) -> Iterator[Problem]:
    found: RowComparison | None = next((item for item in values.rows if item.role == role), None)
    if found is not None and found.differing and found.first is not None:
        ref = spec.tensors.get(role)
        measured = f"first: draft row {found.first[0]} against target row {found.first[1]}"
        yield Problem(f"{found.differing} of {found.rows} rows differ from the target's", subject=role, measured=measured, expected="equal bytes", file=ref.file if ref else "")


def _at(item: TensorValues, message: str, *, measured: object, expected: object) -> Problem:
    return Problem(message, subject=item.name, measured=measured, expected=expected, file=item.file)


def _initial(sample: Sample, inputs: int) -> str:
    """The initialisation whose moments the sample has; empty when none. Tolerances are four sampling errors."""
    error = 4 / math.sqrt(2 * sample.elements) + 0.004
    if abs(sample.kurtosis - 3) < 4 * math.sqrt(24 / sample.elements):
        for name, deviation in _INITIAL_DEVIATIONS.items():
            if abs(sample.deviation / deviation - 1) < error and abs(sample.mean) < 4 * deviation / math.sqrt(sample.elements):
                return name
    bound = 1 / math.sqrt(inputs)
    uniform = abs(sample.kurtosis - 1.8) < 0.05 and abs(sample.deviation * math.sqrt(3) / bound - 1) < error and sample.largest <= bound * 1.01
    return f"uniform within {bound:.4f} (torch.nn.Linear)" if uniform else ""
