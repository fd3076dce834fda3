"""Outputs as a server gives them, token ids only: rounding is a tie, a wrong token a defect, in both dtypes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from speculators_convert.errors import SmokeError
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import loop, splits
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS
from speculators_convert.smoke.sglang import server_splits
from speculators_convert.smoke.sglang.server_splits import classify, measure

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
NAME = "tiny-bonus-reduced-vanilla"
GAMMA = 6
LIMITS = loop.Limits(64, (0,))
Ids = list[tuple[int, ...]]


@pytest.fixture(scope="module")
def rough(opened: Callable[..., Any]) -> tuple[Draft, Target]:
    """Draft and target in bfloat16."""
    files, where = opened(TRAINED / NAME), Placement(torch.bfloat16)
    target = load_target(TRAINED / "tiny-target", files.spec.target_layer_ids, where)
    return Draft(Reading(files.spec), read_weights(files.spec, files.source, where), target.shared), target


@pytest.fixture(scope="module")
def outputs(rough: tuple[Draft, Target], prompts: tuple[Prompt, ...]) -> tuple[Ids, Ids, Ids]:
    """Prompts, plain and drafted outputs, all in bfloat16."""
    draft, target = rough
    requests = [prompt.input_ids for prompt in prompts]
    plain = [tuple(loop.generate_plain(target, request, LIMITS)) for request in requests]
    return requests, plain, [tuple(run.tokens) for run in loop.generate(draft, target, requests, LIMITS)]


def test_in_bfloat16_drafted_output_parts_from_plain_in_ties_only(rough: tuple[Draft, Target], outputs: tuple[Ids, Ids, Ids]) -> None:
    found = classify(rough[1], *outputs, gamma=GAMMA, dtype="bfloat16", against="plain", mode="graph", tp=2, concurrency=8)
    assert found.defects == 0
    assert found.ties > 0, "nothing to classify: the test shows nothing"
    assert found.exact + found.ties == len(outputs[0])
    assert (found.against, found.mode, found.tp, found.concurrency, found.dtype) == ("plain", "graph", 2, 8, "bfloat16")
    for split in found.splits:
        assert max(abs(split.plain_gap_steps or 0), abs(split.block_gap_steps or 0)) <= TOLERANCE_STEPS["bfloat16"]
        assert (split.plain_token, split.drafted_token) == (outputs[1][split.prompt][split.at], outputs[2][split.prompt][split.at])


@pytest.mark.parametrize("at", [0, 1, 5, 6, 7, 40, 63])
def test_a_wrong_token_is_a_defect_wherever_it_stands(at: int, rough: tuple[Draft, Target], outputs: tuple[Ids, Ids, Ids]) -> None:
    requests, plain, _ = outputs
    spoiled = [(*output[:at], (output[at] + 500) % 1024, *output[at + 1 :]) for output in plain[:3]]
    found = classify(rough[1], requests[:3], plain[:3], spoiled, gamma=GAMMA, dtype="bfloat16")
    assert [split.at for split in found.splits] == [at] * 3
    assert (found.exact, found.ties, found.defects) == (0, 0, 3)


def test_in_float32_nothing_parts_and_a_token_that_is_second_by_far_is_a_defect(pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    draft, target = pair_of(NAME)
    requests, plain = [prompt.input_ids for prompt in prompts], [prompt.reference_output_ids or () for prompt in prompts]
    drafted = [tuple(run.tokens) for run in loop.generate(draft, target, requests, LIMITS)]
    whole = classify(target, requests, plain, drafted, gamma=GAMMA, dtype="float32")
    assert (whole.exact, whole.ties, whole.defects, whole.splits) == (20, 0, 0, ())
    second = _second(target, [*requests[0], *plain[0][:9]])
    wrong = [(*plain[0][:9], second, *plain[0][10:])]
    (split,) = classify(target, requests[:1], plain[:1], wrong, gamma=GAMMA, dtype="float32").splits
    assert (split.at, split.verdict, split.drafted_token) == (9, "defect", second)
    assert (split.plain_gap_steps or 0) > TOLERANCE_STEPS["float32"]


def _second(target: Target, text: list[int]) -> int:
    return int(target.plain(torch.tensor([text]), target.plain_cache())[0, -1].topk(2).indices[1])


def test_an_output_that_ends_early_is_a_defect(rough: tuple[Draft, Target], outputs: tuple[Ids, Ids, Ids]) -> None:
    requests, plain, _ = outputs
    for left, right in ((plain[:1], [plain[0][:10]]), ([plain[0][:10]], plain[:1])):
        (split,) = classify(rough[1], requests[:1], left, right, gamma=GAMMA, dtype="bfloat16").splits
        assert (split.at, split.verdict, split.plain_gap_steps, split.block_gap_steps) == (10, "defect", None, None)


def test_the_block_gap_covers_the_block_that_the_engine_knows(rough: tuple[Draft, Target], outputs: tuple[Ids, Ids, Ids], prompts: tuple[Prompt, ...]) -> None:
    """At honest splits the engine's own measurement, which knows the accepted counts, is one of the blocks tried."""
    draft, target = rough
    requests, plain, _ = outputs
    runs, seen = loop.generate(draft, target, requests, LIMITS), 0
    for request, left, run in zip(requests, plain, runs, strict=True):
        at = next((at for at, pair in enumerate(zip(left, run.tokens, strict=False)) if pair[0] != pair[1]), None)
        if at is None or at == 0:
            continue
        seen += 1
        known = splits.measure(target, request, left, run, at, GAMMA + 1).block
        pair = torch.tensor((left[at], run.tokens[at]))
        tried = [splits.gap(logits, pair) for logits in server_splits._blocks(target, [*request, *left[:at]], at, GAMMA)]
        assert len(tried) == min(GAMMA, at - 1) + 1
        assert min(abs(known - value) for value in tried) <= 2.0, "the same block on a history that was read in other pieces"
        assert abs(measure(target, request, left[:at], (left[at], run.tokens[at]), GAMMA).block) == max(map(abs, tried))
    assert seen


@pytest.mark.parametrize("outputs_before", [0, 1, 3, 20])
def test_cost_is_bounded(outputs_before: int, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    _, target = pair_of(NAME)
    plain = prompts[0].reference_output_ids or ()
    before = target.passes
    measure(target, prompts[0].input_ids, plain[:outputs_before], (plain[outputs_before], 5), GAMMA)
    assert target.passes - before <= 3 + 2 * (GAMMA + 1)


@pytest.mark.parametrize("kind", ["plain", "sliding", "recurrent"])
def test_each_block_gives_the_logits_of_a_pass_from_scratch(kind: str) -> None:
    """Layers with a state cannot go back: the blocks are taken on a state that was put back."""
    target, text = random_target(kind), [5, 9, 14, 3, 77, 41, 8, 29, 63, 17, 2, 90, 33]
    assert target.ragged == (kind != "recurrent")
    expected = target_logits(target, text)
    blocks = list(server_splits._blocks(target, text, 9, GAMMA))
    assert len(blocks) == GAMMA + 1
    for logits in [*blocks, server_splits._alone(target, text, 9)]:
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def random_target(kind: str) -> Target:
    sizes = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pad_token_id": 1,
    }
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4}
    kinds = {
        "plain": ("Qwen3", {}),
        "sliding": ("Qwen3", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5, "use_sliding_window": True}),
        "recurrent": ("Qwen3_5Text", {**heads, "layer_types": ["linear_attention", "full_attention"]}),
    }
    name, more = kinds[kind]
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    return Target(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval(), (0,))


@torch.no_grad()
def target_logits(target: Target, text: list[int]) -> torch.Tensor:
    return target.plain(torch.tensor([text]), target.plain_cache())[0, -1]


@pytest.mark.parametrize(("dtype", "said"), [("float16", "no tolerance is known"), ("float32", "loaded in another dtype")])
def test_a_dtype_that_does_not_fit_is_refused(dtype: str, said: str, rough: tuple[Draft, Target]) -> None:
    with pytest.raises(SmokeError, match=said):
        classify(rough[1], [], [], [], gamma=GAMMA, dtype=dtype)
