"""Targets of other families, tiny and random: drafted greedy output equals target-only greedy output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from speculators_convert.smoke import pair
from speculators_convert.smoke.compare import judge, outcome
from speculators_convert.smoke.engine import decode, loop, splits
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
COMMON = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "pad_token_id": 1,
    "initializer_range": 0.2,
}
SLIDING = ["sliding_attention", "full_attention"] * 2
LINEAR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
LINEAR_SIZES = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", {}),
    "qwen3-sliding": ("Qwen3", {"layer_types": SLIDING, "sliding_window": 9, "use_sliding_window": True}),
    "llama": ("Llama", {}),
    "mistral-sliding": ("Mistral", {"sliding_window": 9}),
    "gemma2": ("Gemma2", {"layer_types": SLIDING, "sliding_window": 9, "query_pre_attn_scalar": 32}),
    "gemma3": ("Gemma3Text", {"layer_types": SLIDING, "sliding_window": 9, "query_pre_attn_scalar": 32}),
    "qwen3-moe": ("Qwen3Moe", EXPERTS),
    "qwen3-next-hybrid": ("Qwen3Next", {**EXPERTS, **LINEAR_SIZES, "layer_types": LINEAR, "shared_expert_intermediate_size": 64}),
    "qwen3.5-hybrid": ("Qwen3_5Text", {**LINEAR_SIZES, "layer_types": LINEAR}),
}


def random_target(family: str, taps: tuple[int, ...], dtype: torch.dtype = torch.float32, **changed: Any) -> Target:
    kind, extra = FAMILIES[family]
    extra = {**extra, **changed}
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**COMMON, **extra})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return Target(model.to(dtype).eval(), taps)


def shifted(ids: list[int], by: int) -> list[int]:
    return [(index * 37 + by) % 1000 for index in ids]


@pytest.mark.parametrize("family", FAMILIES)
def test_drafted_output_equals_target_only_output(family: str, opened: Callable[..., Any]) -> None:
    draft_files = opened(pair.DRAFT)
    target = random_target(family, draft_files.spec.target_layer_ids)
    draft = Draft(Reading(draft_files.spec), read_weights(draft_files.spec, draft_files.source, Placement()), target.shared)
    prompts = [shifted(list(range(length)), length) for length in (5, 17, 26)]
    limits = loop.Limits(20)
    plain = [loop.generate_plain(target, prompt, limits) for prompt in prompts]
    steps = loop.Steps(propose=lambda draft, state, extent: partly_right(draft, state, prompts, plain))
    drafted = loop.generate(draft, target, prompts, limits, steps=steps)
    assert [run.tokens for run in drafted] == plain
    assert {count for run in drafted for count in run.accepted} >= {0, 1, 2}
    honest = loop.generate(draft, target, prompts, limits)
    assert [run.tokens for run in honest] == plain
    assert target.ragged == ("hybrid" not in family)


def partly_right(draft: Draft, state: decode.State, prompts: list[list[int]], plain: list[list[int]]) -> decode.Proposal:
    """Draft tokens of which a varying number are right, so that acceptance and rejection both happen."""
    _, position = decode.anchors(state)
    rows = []
    for row, anchor in enumerate(position.tolist()):
        text = next(prompt + output for prompt, output in zip(prompts, plain, strict=True) if prompt == state.ids[row, : len(prompt)].tolist())
        ahead = (text + [0] * 8)[anchor + 1 : anchor + 1 + draft.gamma]
        good = (0, 3, 1, 5, 2)[anchor % 5]
        rows.append([token if slot < good else (token + 1) % 1024 for slot, token in enumerate(ahead)])
    return decode.Proposal(torch.tensor(rows), torch.tensor(True))


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_a_difference_is_a_tie_of_the_target_itself(family: str, opened: Callable[..., Any]) -> None:
    draft_files = opened(pair.DRAFT)
    target = random_target(family, draft_files.spec.target_layer_ids, torch.bfloat16)
    draft = Draft(Reading(draft_files.spec), read_weights(draft_files.spec, draft_files.source, Placement(torch.bfloat16)), target.shared)
    prompts, limits = [shifted(list(range(length)), length) for length in (5, 17, 26)], loop.Limits(16)
    plain = [loop.generate_plain(target, prompt, limits) for prompt in prompts]
    steps = loop.Steps(propose=lambda draft, state, extent: partly_right(draft, state, prompts, plain))
    runs = loop.generate(draft, target, prompts, limits, steps=steps)
    for prompt, run, alone in zip(prompts, runs, plain, strict=True):
        at = outcome(0, run.tokens, run.accepted, alone).first_difference
        if at is not None:
            gaps = splits.measure(target, prompt, alone, run, at, draft.gamma + 1)
            assert judge(0, at, (alone[at], run.tokens[at]), gaps, "bfloat16").verdict == "tie", gaps


@pytest.mark.parametrize("family", ["qwen3-sliding", "gemma3", "qwen3-next-hybrid"])
def test_long_contexts_run_through_sliding_layers_of_both_models(family: str, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PREFILL_TOKENS", 128)
    draft_files = opened(TRAINED / "tiny-sliding-causal")
    changed = {} if "hybrid" in family else {"sliding_window": 40}
    target = random_target(family, draft_files.spec.target_layer_ids, max_position_embeddings=1024, **changed)
    draft = Draft(Reading(draft_files.spec), read_weights(draft_files.spec, draft_files.source, Placement()), target.shared)
    prompts, limits = [shifted(list(range(length)), length) for length in (600, 77, 129)], loop.Limits(12)
    plain = [loop.generate_plain(target, prompt, limits) for prompt in prompts]
    steps = loop.Steps(propose=lambda draft, state, extent: partly_right(draft, state, prompts, plain))
    for chosen in (steps, loop.EAGER):
        assert [run.tokens for run in loop.generate(draft, target, prompts, limits, steps=chosen)] == plain


def test_a_sliding_draft_decodes_a_long_context_as_if_it_began_a_window_before(opened: Callable[..., Any]) -> None:
    """Positions are relative: with every layer sliding, only the last `window` context tokens matter, wherever they lie."""
    draft_files = opened(TRAINED / "tiny-sliding-causal")
    target = random_target("qwen3", draft_files.spec.target_layer_ids)
    draft = Draft(Reading(draft_files.spec), read_weights(draft_files.spec, draft_files.source, Placement()), target.shared)
    states, anchor = torch.randn(1, 700, 384, generator=torch.Generator().manual_seed(1)), torch.tensor([9])
    window = draft_files.spec.sliding_window
    long = draft.cache(1, 700)
    draft.append(long, states, torch.arange(700)[None])
    short = draft.cache(1, window)
    draft.append(short, states[:, -window:], torch.arange(window)[None])
    far, near = draft.hidden(anchor, torch.tensor([700]), long, 700), draft.hidden(anchor, torch.tensor([window]), short, window)
    torch.testing.assert_close(far, near, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(("file", "change"), [("config.json", {"num_hidden_layers": 3}), ("config.json", {"hidden_size": "wide"}), ("tokenizer.json", {"model": 5})])
def test_a_target_that_cannot_be_loaded_is_a_reason_and_no_traceback(tmp_path: Path, file: str, change: dict[str, object]) -> None:
    target = tmp_path / "target"
    shutil.copytree(TRAINED / "tiny-target", target)
    (target / file).write_text(json.dumps({**json.loads((target / file).read_text()), **change}))
    done = subprocess.run(
        [sys.executable, "-m", "speculators_convert", "smoke", str(TRAINED / "tiny-anchor-full-vanilla"), "--target", str(target)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "verdict not-run" in done.stdout
