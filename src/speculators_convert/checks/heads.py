"""DSP3xx: the tensors: names, shapes, heads, and whether they divide over tensor-parallel ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from speculators_convert.checks.conflicts import disagreement
from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG, listed
from speculators_convert.findings import Problem
from speculators_convert.formats.roles import is_role
from speculators_convert.model import Severity
from speculators_convert.spec import DraftSpec, TensorRef, expected_shapes

_TABLES = ("d2t", "t2d")
_BORROWED = ("embed_tokens.weight", "lm_head.weight")
_PACKED = {"U8", "I8", "I32", "F4"}
_SCALE_SUFFIXES = ("_scale", "_scale_inv", "_scale_2", "_packed", "_shape", "_zero_point", "_g_idx")


@check("DSP301", "All tensors are there", requires=(*UNREADABLE, "DSP304"))
def tensors_present(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Each tensor that the draft's own numbers ask for is in the file: backbone layers, `fc`, norms, Markov head, and the head of a reduced vocabulary.

    ## Why it matters
    vLLM and SGLang do not notice missing backbone or Markov weights: the parameter keeps random values and the draft accepts almost nothing.

    ## How to fix
    Save the draft again, or restore the missing shard.

    ## Reported in
    sglang#32279, speculators#1114, speculators#1131, Edge-LLM#200
    """
    missing = [role for role in expected_shapes(spec) if role not in spec.tensors and role not in _TABLES]
    for role in missing[:20]:
        yield Problem("a tensor is missing", subject=role, measured="not in the file", expected=f"shape {_shape(expected_shapes(spec)[role])}")
    if len(missing) > 20:
        yield Problem(f"{len(missing) - 20} more tensors are missing", subject=listed(missing[20:]), measured="not in the file", expected=f"{len(expected_shapes(spec))} tensors")


@check("DSP302", "Tensors have the shapes that the draft asks for")
def shapes_fit(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    The shape of each tensor follows from hidden size, heads, vocabularies, rank and tapped layers.

    ## Why it matters
    A transposed or cut matrix is an error in one engine and, where loaders copy what fits, a wrong model in another.

    ## How to fix
    Save the tensor again from the trained model.

    ## Reported in
    onnxruntime-genai#2490 (validates every weight shape), vllm-metal#766
    """
    for role, shape in expected_shapes(spec).items():
        ref = spec.tensors.get(role)
        if ref is None or role in _TABLES:
            continue
        wanted = (shape[0], None) if role == "fc.weight" else shape
        if not _fits(wanted, ref):
            yield Problem("a tensor has the wrong shape", subject=role, measured=list(ref.shape), expected=_shape(shape), file=ref.file)


@check("DSP303", "No tensor is unknown", severity=Severity.WARNING, requires=("DSP304",))
def tensors_known(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    Each tensor has a place in the draft: no unknown names, and no head parts that the head's kind does not use.

    ## Why it matters
    vLLM stops at an unknown name; SGLang ignores it, so a weight that mattered in training is silently left out.

    ## How to fix
    Remove left-overs of training. If the tensor matters, the draft is of a variant that this tool and the engines do not know: do not serve it.

    ## Reported in
    sglang#32279, vLLM 0.33.0 `qwen3_dspark.py`, Laguna DFlash (per-tap norms ignored)
    """
    for name in spec.unknown_tensors:
        if not _is_quantization_part(name):
            sink = spec.attention_sinks and "sink" in name
            message = "learned attention sinks, which only some engines apply" if sink else "a tensor has no place in the draft"
            yield Problem(message, subject=name[:200], measured="unknown name", expected="a name of the format", severity=Severity.INFO if sink else None)
    known = {*expected_shapes(spec), *_TABLES, *_BORROWED}
    for role, ref in sorted(spec.tensors.items()):
        attention_bias = role.startswith("layers.") and role.endswith(".bias") and spec.attention_bias
        if role not in known and not attention_bias:
            yield Problem("a tensor is not used by this draft", subject=role, measured="present", expected="absent, by the config and the head's kind", file=ref.file)


@check("DSP304", "Tensor names carry no prefix")
def names_bare(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    No tensor name is a known name behind a prefix such as `model.`, `draft_model.` or `logit_head.`.

    ## Why it matters
    vLLM adds `model.` itself and fails on a prefixed file; SGLang ignores `model.markov_head.*` and drafts with a random Markov head.

    ## How to fix
    Rename the tensors (only the header changes) and save again.

    ## Reported in
    vLLM 0.33.0 `qwen3_dspark.py`, SGLang 0.5.23 `models/dspark.py`, SpecForge legacy exports
    """
    prefixes: Counter[str] = Counter()
    for name in spec.unknown_tensors:
        parts = name.split(".")
        prefix = next((".".join(parts[:cut]) for cut in range(1, min(len(parts), 6)) if is_role(".".join(parts[cut:]))), None)
        if prefix is not None and ".".join(parts[len(prefix.split(".")) :]) not in spec.tensors:
            prefixes[prefix] += 1
    for prefix, count in sorted(prefixes.items()):
        yield Problem(f"{count} tensor names carry a prefix", subject=prefix[:100], measured=f"{prefix[:100]}.<name>", expected="<name>")
    read = Counter(ref.name.removesuffix(f".{role}") for role, ref in spec.tensors.items() if ref.name.endswith(f".{role}") and not spec.bundled)
    for prefix, count in sorted(read.items()):
        message = f"{count} tensor names carry a prefix that is read, and that some engines ignore"
        yield Problem(message, subject=prefix[:100], measured=f"{prefix[:100]}.<name>", expected="<name>", severity=Severity.INFO)


@check("DSP330", "The confidence flag fits the tensors")
def confidence_fits(spec: DraftSpec) -> Iterator[Problem]:
    """
    ## What it checks
    `enable_confidence_head` is true exactly when the file has the confidence head's weights.

    ## Why it matters
        Switched on without weights, SGLang stops in its ragged modes and vLLM drops the head without a word. Switched off with weights, vLLM loses
    the head and SGLang 0.5.23 builds it anyway.

    ## How to fix
    Set `enable_confidence_head` to what the file holds, or restore `confidence_head.proj.weight`.

    ## Reported in
    SGLang 0.5.23 `build_confidence_head`, vLLM 0.33.0 `qwen3_dspark.py`
    """
    problem = disagreement(spec, "enable_confidence_head")
    if problem is not None:
        yield problem


@check("DSP350", "Heads divide over the tensor-parallel ranks")
def heads_divide(spec: DraftSpec, tp_degrees: tuple[int, ...]) -> Iterator[Problem]:
    """
    ## What it checks
    For each requested tensor-parallel degree, the attention heads divide by it, and the key/value heads divide by it or it by them.

    ## Why it matters
    Engines split attention by heads and stop at start-up otherwise. A draft runs at the target's degree, so a draft with few heads limits it.

    ## How to fix
    Serve at a degree that divides the draft's heads, or train a draft with more heads.

    ## Reported in
    SGLang 0.5.23 `models/dflash.py` (the same rule), vllm-metal#766
    """
    heads, kv = spec.num_attention_heads, spec.num_key_value_heads
    for tp in tp_degrees:
        if heads is not None and heads % tp:
            yield Problem(f"the attention heads do not divide by {tp}", subject="num_attention_heads", measured=heads, expected=f"a multiple of {tp}", file=CONFIG)
        if kv and kv % tp and tp % kv:
            yield Problem(f"the key/value heads do not fit {tp} ranks", subject="num_key_value_heads", measured=kv, expected=f"a multiple or a divisor of {tp}", file=CONFIG)


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if item is None else str(item) for item in shape) + "]"


def _fits(wanted: tuple[int | None, ...], ref: TensorRef) -> bool:
    """Whether a shape is the wanted one; a packed type holds several values of a row in one element."""
    if len(ref.shape) != len(wanted):
        return False
    packed = ref.dtype in _PACKED and len(wanted) == 2
    factors = (2, 4, 8) if packed else ()
    return all(
        need is None or need == have or (axis == 1 and need in [have * factor for factor in factors]) for axis, (need, have) in enumerate(zip(wanted, ref.shape, strict=True))
    )


def _is_quantization_part(name: str) -> bool:
    """Whether the name belongs to a quantized weight: its scale, its packed values, its zero point."""
    return any(name.endswith(suffix) and is_role(name.removesuffix(suffix)) for suffix in _SCALE_SUFFIXES) or name.endswith((".input_scale", ".weight_scale", ".weight_scale_inv"))
