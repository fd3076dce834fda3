"""What must hold before SGLang may load a draft: the checks and engine rules of `inspect`, and the fit with the served target.

Reads headers and tables only: no torch, no SGLang, no code from a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speculators_convert import api
from speculators_convert.engines.rules import Ruling
from speculators_convert.errors import RefusedError
from speculators_convert.sglang_plugin import release
from speculators_convert.spec import DraftSpec, known

TAPS_LAST_LAYER = frozenset({
    "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "GptOssForCausalLM", "LagunaForCausalLM", "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM",
})  # fmt: skip
"""Target classes of SGLang 0.5.23 that also capture after their last layer; the others capture before a layer only."""
_ENGINE = ("SGLang", f"{release.TESTED} + plugin")


@dataclass(frozen=True, slots=True)
class Target:
    """What the launch knows of the target model."""

    name: str
    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int


def read_draft(folder: Path) -> DraftSpec:
    """The normal form of the draft in `folder`; `RefusedError` with each reason why SGLang must not load it."""
    inspection = api.look(str(folder))
    api.refuse_errors(inspection)
    verdict = next(item for item in inspection.report.engines if (item.engine, item.version) == _ENGINE)
    untried = verdict.verdict == Ruling.UNSUPPORTED.value and not verdict.refused
    if verdict.verdict != Ruling.LOADS.value and not untried:
        raise RefusedError(
            "SGLang cannot serve this draft", where=str(folder), measured="; ".join(verdict.reasons), expected="a draft that inspect calls servable", hint=verdict.launch
        )
    return inspection.spec


def check_target(spec: DraftSpec, target: Target, folder: Path) -> None:
    """`RefusedError` when the draft does not belong to this target or taps what SGLang cannot capture there."""
    for name, mine, served in (("vocab_size", spec.target_vocab_size, target.vocab_size), ("hidden_size", spec.hidden_size, target.hidden_size)):
        if mine != served:
            raise RefusedError(
                "the draft was made for another target", where=f"{folder}: {name}", measured=mine, expected=f"{served}, that of {target.name}", hint="serve it with its own target"
            )
    last = max(known(spec.target_layer_ids, "target_layer_ids"))
    limit = target.num_hidden_layers - (0 if target.architecture in TAPS_LAST_LAYER else 1)
    if last >= limit:
        expected = f"ids up to {limit} for a {target.architecture} of {target.num_hidden_layers} layers"
        raise RefusedError("SGLang cannot capture this layer", where=f"{folder}: aux_hidden_state_layer_ids", measured=last + 1, expected=expected)
