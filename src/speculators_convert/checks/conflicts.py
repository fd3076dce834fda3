"""Facts that a file states more than once. One mechanism: each fact of the evidence log has a code, and two statements that differ are a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check, docstring
from speculators_convert.findings import Problem
from speculators_convert.model import Severity
from speculators_convert.spec import DraftSpec


@dataclass(frozen=True, slots=True)
class _Fact:
    """Text of the check of one fact."""

    code: str
    title: str
    why: str
    fix: str
    reported: str
    severity: Severity = Severity.ERROR


_WEIGHTS_RULE = (
    "Engines build the model from the config and then load the weights: with another number they stop with a shape error, or leave part of the weights at random values."
)
_SET_CONFIG = "Set the key to what the tensors say; `spec-convert normalize` does it when the tensors are right."
FACTS = {
    "target_layer_ids": _Fact(
        "DSP215",
        "Both spellings of the tapped layers agree",
        "Speculators' `aux_hidden_state_layer_ids` are one higher than `target_layer_ids`. When a file has both and they do not differ by one, two "
        "engines tap different layers, and the worse one only shows as lower acceptance.",
        "Correct the wrong list, or state it with `--set target_layer_ids=...` (outputs of layers, counted from 0).",
        "Nemotron-3.5 DSpark configs carry both; sglang#30982",
    ),
    "mask_token_id": _Fact(
        "DSP221",
        "The mask token is stated once",
        "The draft was trained with one mask embedding in its empty slots; the other token gives a draft that accepts far less.",
        "Keep the value of training, or state it with `--set mask_token_id=...`.",
        "TorchSpec#133 (placeholder mask)",
    ),
    "rope_theta": _Fact(
        "DSP231",
        "All spellings of rope theta agree",
        "Which spelling wins depends on the engine and the transformers version; a wrong theta costs acceptance and raises no error.",
        "Keep one spelling with the value of training, or state it with `--set rope_theta=...`.",
        "modelopt PR#2221 (theta copied in the wrong order)",
    ),
    "sliding_causal": _Fact(
        "DSP244",
        "Causality of sliding layers is stated once",
        "The order of precedence differs between engines.",
        "Keep one value, or state it with `--set sliding_window_non_causal=...`.",
        "vLLM 0.33.0 speculators path (the key is not forwarded)",
    ),
    "sliding_window_non_causal": _Fact(
        "DSP245",
        "sliding_window_non_causal is stated once",
        "The order of precedence differs between engines.",
        "Keep one value, or state it with `--set sliding_window_non_causal=...`.",
        "vLLM 0.33.0 speculators path (the key is not forwarded)",
    ),
    "dtype": _Fact(
        "DSP264",
        "dtype is that of the weights",
        "Engines load in the dtype of the config. Float16 overflows where bfloat16 does not; float32 doubles the memory.",
        "Set `dtype` to the weights' dtype.",
        "SGLang 0.5.23 `_get_and_verify_dtype`",
        Severity.WARNING,
    ),
    "hidden_size": _Fact("DSP320", "hidden_size is that of the weights", _WEIGHTS_RULE, _SET_CONFIG, "SGLang 0.5.23 `dflash.py` (fc shape check)"),
    "intermediate_size": _Fact("DSP321", "intermediate_size is that of the weights", _WEIGHTS_RULE, _SET_CONFIG, "onnxruntime-genai#2490 (every weight shape is checked)"),
    "num_hidden_layers": _Fact(
        "DSP322",
        "num_hidden_layers is the number of layers in the file",
        "Too large a number leaves layers at random values, too small a one drops trained layers: vLLM and SGLang do not notice missing backbone weights.",
        _SET_CONFIG,
        "sglang#32279, speculators#1114",
    ),
    "num_attention_heads": _Fact("DSP323", "num_attention_heads is that of the weights", _WEIGHTS_RULE, _SET_CONFIG, "vllm-metal#766"),
    "num_key_value_heads": _Fact("DSP324", "num_key_value_heads is that of the weights", _WEIGHTS_RULE, _SET_CONFIG, "vllm-metal#766"),
    "head_dim": _Fact("DSP325", "head_dim is that of the weights", _WEIGHTS_RULE, _SET_CONFIG, "vllm-metal#766"),
    "vocab_size": _Fact(
        "DSP326",
        "The target vocabulary has one size",
        "`markov_w1`, `t2d` and the embedding are indexed by target ids. A smaller table is read out of bounds, a larger one belongs to another target.",
        _SET_CONFIG,
        "speculators#188 (nested vocab_size was the draft's)",
    ),
    "draft_vocab_size": _Fact(
        "DSP327",
        "The draft vocabulary has one size",
        "`lm_head`, `markov_w2` and `d2t` must have one row per draft token: the bias is added to the logits row by row.",
        _SET_CONFIG,
        "SGLang 0.5.23 `default_weight_loader` (shape assertion)",
    ),
    "markov_rank": _Fact(
        "DSP328",
        "The Markov rank is one number",
        "`markov_w1` and `markov_w2` multiply over the rank, the gate and the confidence head take it as input width.",
        _SET_CONFIG,
        "TensorRT-LLM#17327 (rank above 0 needs its tables)",
    ),
    "markov_head_type": _Fact(
        "DSP329",
        "The Markov head is of the stated kind",
        "A gated or recurrent head read as vanilla loads without error and drafts with the wrong bias.",
        "Set `markov_head_type` to what the tensors show (`gate_proj` is gated, `joint_proj` is rnn, neither is vanilla), or state it with `--set markov_head_type=...`.",
        "tokenspeed#829 (vanilla head assumed)",
    ),
    "confidence_head_with_markov": _Fact(
        "DSP331",
        "The confidence head has the stated input",
        "Its input is the hidden state, with or without the Markov embedding; the width of the weight says which. vLLM and SGLang use different defaults for an absent key.",
        _SET_CONFIG,
        "vLLM 0.33.0 and SGLang 0.5.23 defaults differ",
    ),
}
ELSEWHERE = frozenset({"algorithm", "anchor", "gamma", "enable_confidence_head"})
"""Facts whose conflicts other checks report, with more to say."""


def disagreement(spec: DraftSpec, fact: str) -> Problem | None:
    """The deciding statement of a fact against the others; None when all agree. A statement by `--set` that overrides the file is only info."""
    stated = [item for item in spec.evidence if item.fact == fact]
    deciding = next((item for item in stated if item.decides), None)
    others = [item for item in stated if deciding is not None and item.says != deciding.says]
    if deciding is None or not others:
        return None
    by_user = deciding.source.startswith("--set")
    return Problem(
        f"{fact} is set by hand against the file" if by_user else f"{fact} is stated in two ways",
        subject=fact,
        measured="; ".join(f"{item.says} ({item.source})" for item in others),
        expected=f"{deciding.says} ({deciding.source})",
        severity=Severity.INFO if by_user else None,
    )


def _register(fact: str, text: _Fact) -> None:
    def agrees(spec: DraftSpec) -> Iterator[Problem]:
        problem = disagreement(spec, fact)
        if problem is not None:
            yield problem

    agrees.__doc__ = docstring(f"All places that state `{fact}` (config keys on each level, tensor shapes) say the same.", text.why, text.fix, text.reported)
    agrees.__name__ = f"{fact}_agrees"
    check(text.code, text.title, severity=text.severity, requires=UNREADABLE)(agrees)


for _fact, _text in FACTS.items():
    _register(_fact, _text)


@check("DSP340", "No other fact is stated in two ways", severity=Severity.WARNING, requires=UNREADABLE)
def other_facts_agree(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Facts without a code of their own are stated in one way too.

    ## Why it matters
    Two engines that read different places build different models from one file.

    ## How to fix
    Remove or correct the statement that is wrong.

    ## Reported in
    vime `diff_dspark_serving_config` (two configs of one draft differ)
    """
    for fact in sorted({item.fact for item in spec.evidence} - set(FACTS) - ELSEWHERE):
        problem = disagreement(spec, fact)
        if problem is not None:
            yield problem
