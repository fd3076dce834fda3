"""DSP230 to DSP259: rotary embedding, attention windows and context length of the draft layers."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG, backbone
from speculators_convert.findings import Problem
from speculators_convert.model import Severity
from speculators_convert.spec import AttentionKind, DraftSpec

_SCALING_KEYS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Keys that each rope type needs: transformers 5.19 `modeling_rope_utils.py`."""


@check("DSP230", "rope theta is stated", severity=Severity.WARNING)
def theta_stated(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The config states `rope_theta`, nested or at the top.

    ## Why it matters
        Without it every engine takes 10000. Most targets have 1e6 or more and drafts are trained with the target's: acceptance falls without an
    error. The tool never copies it from the target.

    ## How to fix
    Restore the value of the training run, or state it with `--set rope_theta=...`.

    ## Reported in
    Lucebox#447 (converter refuses without theta), modelopt PR#2221
    """
    if any(item.fact == "rope_theta_default" for item in spec.evidence):
        yield Problem("rope theta is not stated", subject="rope_theta", measured="no key", expected="rope_parameters.rope_theta", file=CONFIG)


@check("DSP232", "No key asks for another rotary embedding", severity=Severity.WARNING)
def rope_plain(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The draft's config has no `partial_rotary_factor`, `mrope_section` or `mrope_interleaved`, copied from the target.

    ## Why it matters
    The trainer's layers rotate the whole head and ignore these keys; SGLang honours them, so the draft is served with another embedding than it was trained with.

    ## How to fix
    Remove the keys from the draft's config; `spec-convert normalize` does it.

    ## Reported in
    sglang#34734, satgeze/Qwen3.6-27B-DSpark (carries unused rotary keys)
    """
    for key in spec.rope.ignored:
        yield Problem(f"{key} is in the draft's config and was not used in training", subject=key, measured="present", expected="absent", file=CONFIG)


@check("DSP233", "The rope type is known and complete")
def rope_type_complete(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `rope_type` is a type that engines know, and the keys that it needs are there.

    ## Why it matters
    An unknown type stops the engine; a missing factor is an error in one and 1.0 in another.

    ## How to fix
    Restore the missing keys from the training config, or set `rope_type` to "default" if no scaling was trained.

    ## Reported in
    RadixArk/Qwen3.8-27B-DSpark (YaRN), specforge `export --to hf` (mirrors old and new spellings)
    """
    kind = spec.rope.type
    if kind not in _SCALING_KEYS:
        yield Problem("the rope type is not known", subject="rope_type", measured=kind, expected="one of " + ", ".join(sorted(_SCALING_KEYS)), file=CONFIG)
        return
    missing = [key for key in _SCALING_KEYS[kind] if key not in spec.rope.scaling]
    if missing:
        yield Problem(f"rope type {kind} lacks keys", subject="rope_parameters", measured=f"missing: {', '.join(missing)}", expected=", ".join(_SCALING_KEYS[kind]), file=CONFIG)


@check("DSP234", "Rope parameters are one set")
def rope_one_set(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    `rope_parameters` is one set of values and not one set per layer type.

    ## Why it matters
    Targets with two kinds of layers keep two sets. Copied into a draft they hide theta: engines then take 10000.

    ## How to fix
    Put the values that the draft was trained with directly into `rope_parameters`.

    ## Reported in
    transformers 5 gemma3/gemma4 configs; speculators draft configs built from them
    """
    table, pointer = backbone(checkpoint)
    parameters = table.get("rope_parameters")
    if isinstance(parameters, dict):
        nested = sorted(key for key, value in parameters.items() if isinstance(value, dict))
        if nested:
            yield Problem(
                "rope_parameters has one set per layer type",
                subject="rope_parameters",
                measured=", ".join(nested)[:200],
                expected="rope_theta and rope_type directly",
                file=CONFIG,
                pointer=f"{pointer}/rope_parameters",
            )


@check("DSP240", "layer_types names each layer", requires=UNREADABLE)
def layer_types_complete(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    `layer_types` has one known entry per draft layer: full_attention or sliding_attention.

    ## Why it matters
        Sliding layers are causal inside the block and see a window, full ones are neither. A list of another length, or a type of another model,
    gives layers an attention that they were not trained with.

    ## How to fix
    Write one entry per layer, as in training.

    ## Reported in
    speculators#749 (sliding became the default), SGLang 0.5.23 `dflash.py`
    """
    table, pointer = backbone(checkpoint)
    where = f"{pointer}/layer_types"
    if spec.layer_types is None and isinstance(table.get("layer_types"), list):
        yield Problem(
            "layer_types has a value that a draft cannot use", measured=table["layer_types"], expected=", ".join(AttentionKind), subject="layer_types", file=CONFIG, pointer=where
        )
    elif spec.layer_types is not None and spec.num_hidden_layers is not None and len(spec.layer_types) != spec.num_hidden_layers:
        yield Problem(
            "layer_types does not name each layer",
            measured=f"{len(spec.layer_types)} entries",
            expected=f"{spec.num_hidden_layers} layers",
            subject="layer_types",
            file=CONFIG,
            pointer=where,
        )


@check("DSP241", "Sliding layers have a window")
def window_stated(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    When a layer is sliding_attention, `sliding_window` is stated.

    ## Why it matters
    SGLang stops without it; others then attend over the whole context, which the layer never saw in training.

    ## How to fix
    Restore `sliding_window`, or state it with `--set sliding_window=N`.

    ## Reported in
    speculators#749, SGLang 0.5.23 (needs sliding_window)
    """
    if spec.slides and spec.sliding_window is None:
        yield Problem("sliding layers without a window", subject="sliding_window", measured="not stated", expected="a number of context tokens", file=CONFIG)


@check("DSP242", "The window is switched on", severity=Severity.WARNING)
def window_switched_on(spec: DraftSpec, checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    When a Qwen3 backbone has sliding layers, `use_sliding_window` is true.

    ## Why it matters
    transformers' `Qwen3Config` sets `sliding_window` to null otherwise. An engine that builds that class loses the window, one that reads the JSON keeps it.

    ## How to fix
    Set `use_sliding_window` to true; `spec-convert normalize` does it.

    ## Reported in
    transformers `Qwen3Config.__post_init__`
    """
    table, pointer = backbone(checkpoint)
    if checkpoint.gguf or not str(table.get("model_type", "qwen3")).startswith("qwen3"):
        return
    if spec.slides and spec.sliding_window is not None and table.get("use_sliding_window") is not True:
        yield Problem(
            "the sliding window is not switched on",
            subject="use_sliding_window",
            measured=table.get("use_sliding_window"),
            expected="true",
            file=CONFIG,
            pointer=f"{pointer}/use_sliding_window",
        )


@check("DSP250", "The context length is stated", severity=Severity.WARNING)
def context_stated(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The config states `max_position_embeddings`.

    ## Why it matters
    Without it engines take the class default (32768 for Qwen3) and SGLang refuses a target with a longer context.

    ## How to fix
    Restore the key, or state it with `--set max_position_embeddings=N`.

    ## Reported in
    SGLang 0.5.23 `model_config.py` (derived context length)
    """
    if spec.max_position_embeddings is None:
        yield Problem("the context length is not stated", subject="max_position_embeddings", measured="no key", expected="at least the target's context length", file=CONFIG)
