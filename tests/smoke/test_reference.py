"""The back end: the shipped pair passes, misfits and broken weights are refused with both numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from speculators_convert.errors import SmokeError, UsageError
from speculators_convert.results.smoke import Prompt, SmokeConfig
from speculators_convert.smoke import pair
from speculators_convert.smoke.compare import outcome
from speculators_convert.smoke.reference import BACKEND
from speculators_convert.sources import MemorySource
from speculators_convert.workloads.prompt_file import read_prompts

TRAINED = Path(__file__).parents[2] / "fixtures" / "trained"
PROMPT = (Prompt(input_ids=(266, 223, 492, 337, 270, 302)),)


def quiet(done: int, total: int, what: str) -> None:
    """No progress."""


def config(**values: Any) -> SmokeConfig:
    return SmokeConfig(draft="draft", target="target", **{"max_new_tokens": 8, **values})


def test_the_shipped_pair_is_a_self_test(opened: Callable[[Path], Any]) -> None:
    draft, seen = opened(pair.DRAFT), []
    prompts = read_prompts(pair.PROMPTS, pair.TARGET)
    run = BACKEND.run(config(max_new_tokens=64, batch_size=8), draft.spec, draft.source, pair.TARGET, prompts, lambda *step: seen.append(step))
    (mode,) = run.modes
    assert (mode.exact, mode.total) == (8, 8)
    assert mode.acceptance_length == pytest.approx(pair.ACCEPTANCE_LENGTH, abs=0.05)
    assert mode.acceptance_length == pytest.approx(1 + sum(mode.acceptance_by_position), abs=1e-9)
    assert list(mode.acceptance_by_position) == sorted(mode.acceptance_by_position, reverse=True)
    assert mode.drafted_tokens == mode.verify_steps * 6
    assert [item.holds for item in run.comparisons] == [True, True]
    assert {"torch", "transformers", "device", "dtype"} <= set(run.environment)
    assert all(0 <= done <= total for done, total, _ in seen)
    assert seen[-1][0] == 8


def test_bonus_layout_counts_gamma_tokens_and_not_its_slots(opened: Callable[[Path], Any]) -> None:
    draft = opened(TRAINED / "tiny-bonus-reduced-vanilla")
    (mode,) = BACKEND.run(config(), draft.spec, draft.source, TRAINED / "tiny-target", PROMPT, quiet).modes
    assert len(mode.acceptance_by_position) == 6
    assert mode.drafted_tokens == mode.verify_steps * 6


def test_bfloat16_runs(opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    run = BACKEND.run(config(dtype="bfloat16"), draft.spec, draft.source, pair.TARGET, PROMPT, quiet)
    assert run.modes[0].acceptance_length > 1
    assert run.environment["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"target_vocab_size": 2048, "draft_vocab_size": 2048}, "target_vocab_size"),
        ({"target_hidden_size": 256}, "target_hidden_size"),
        ({"target_layer_ids": (0, 1, 4)}, "target_layer_ids"),
        ({"target_layer_ids": (0, 1)}, "fc.weight"),
        ({"mask_token_id": 1024}, "mask_token_id"),
        ({"intermediate_size": 300}, "layers.0.mlp.gate_proj.weight"),
        ({"hidden_act": "tanhexp"}, "hidden_act"),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(change: dict[str, Any], where: str, opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    with pytest.raises(SmokeError) as caught:
        BACKEND.run(config(), draft.spec.model_copy(update=change), draft.source, pair.TARGET, PROMPT, quiet)
    assert caught.value.where == where
    assert caught.value.measured is not None
    assert caught.value.expected is not None


@pytest.mark.parametrize(
    ("values", "prompt", "error", "message"),
    [
        ({"modes": ("turbo",)}, (5,), UsageError, "no such mode"),
        ({"dtype": "float8"}, (5,), SmokeError, "does not run in this dtype"),
        ({}, (5, 1024), SmokeError, "prompt 1: a token id has no embedding"),
        ({"max_new_tokens": 510}, (5, 6, 7), SmokeError, "longer than the target's positions"),
    ],
)
def test_a_run_that_cannot_be_made_says_why(values: dict[str, Any], prompt: tuple[int, ...], error: type[Exception], message: str, opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    with pytest.raises(error, match=message):
        BACKEND.run(config(**values), draft.spec, draft.source, pair.TARGET, (Prompt(input_ids=prompt),), quiet)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is for machines without CUDA")
def test_cuda_is_refused_where_there_is_none(opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    with pytest.raises(SmokeError, match="no CUDA device"):
        BACKEND.run(config(device="cuda"), draft.spec, draft.source, pair.TARGET, PROMPT, quiet)


def test_broken_weights_are_a_clear_failure(opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    data = bytearray((pair.DRAFT / "model.safetensors").read_bytes())
    ref = draft.spec.tensors["norm.weight"]
    data[ref.start : ref.stop] = np.full(ref.size_bytes // 2, 0x7FC0, dtype="<u2").tobytes()
    with pytest.raises(SmokeError, match="draft, block: logits are not finite"):
        BACKEND.run(config(), draft.spec, MemorySource({"model.safetensors": bytes(data)}), pair.TARGET, PROMPT, quiet)


def test_a_folder_that_is_no_model_is_a_clear_failure(tmp_path: Path, opened: Callable[[Path], Any]) -> None:
    draft = opened(pair.DRAFT)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(SmokeError, match="cannot load the target") as caught:
        BACKEND.run(config(), draft.spec, draft.source, tmp_path, PROMPT, quiet)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("drafted", "plain", "first"),
    [([1, 2], [1, 2], None), ([1, 3], [1, 2], 1), ([1], [1, 2], 1), ([1, 2, 3], [1, 2], 2)],
)
def test_first_difference(drafted: list[int], plain: list[int], first: int | None) -> None:
    found = outcome(0, drafted, [1], plain)
    assert (found.exact, found.first_difference) == (first is None, first)


def test_importing_the_package_and_the_back_end_does_not_import_torch() -> None:
    names = ", ".join(f"speculators_convert.{name}" for name in ("smoke.reference", "smoke.pair", "smoke.sglang.backend", "workloads.prompt_file", "serving.process"))
    code = f"import sys, {names}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
