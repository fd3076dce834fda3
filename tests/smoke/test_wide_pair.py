"""The wide pair: the trained fixtures with heads of 64, and the same output and acceptance."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from speculators_convert import api
from speculators_convert.model import Severity
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import loop
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import load_target

ROOT = Path(__file__).parents[2]
TRAINED = ROOT / "fixtures" / "trained"
LENGTHS = {
    "tiny-anchor-full-vanilla": 2.57, "tiny-bonus-reduced-vanilla": 2.55, "tiny-anchor-reduced-gated": 2.58, "tiny-sliding-causal": 2.01, "tiny-sliding-noncausal": 2.38,
}  # fmt: skip
"""The table of fixtures/README.md, tokens for each verify step with the right reading."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair, made by the tool as it is run."""
    out = tmp_path_factory.mktemp("wide")
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "make_wide_pair.py"), str(out)], capture_output=True, text=True, check=True)
    assert f"{out / 'tiny-target'}: 24 tensors widened" in done.stdout
    return out


@pytest.mark.parametrize("name", ["tiny-target", *LENGTHS])
def test_every_number_is_the_fixtures_own_or_zero(name: str, wide: Path) -> None:
    """Nothing is rounded, and what does not belong to a head is untouched."""
    before, after = (load_file(folder / name / "model.safetensors") for folder in (TRAINED, wide))
    assert before.keys() == after.keys()
    for key, narrow in before.items():
        module = key.removesuffix(".weight").rpartition(".")[2]
        if module not in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
            assert torch.equal(narrow, after[key])
            continue
        copies = 2 if module == "k_proj" else 1
        assert (after[key].dtype, after[key].numel()) == (narrow.dtype, 2 * narrow.numel())
        kept, own = after[key][after[key] != 0], narrow[narrow != 0].repeat(copies)
        assert torch.equal(kept.sort().values, own.sort().values)


@pytest.mark.parametrize("name", LENGTHS)
def test_draft_and_target_fit_each_other_and_have_heads_of_64(name: str, wide: Path) -> None:
    report = api.inspect(str(wide / name), target=str(wide / "tiny-target"))
    assert [finding.code for finding in report.findings if finding.severity is Severity.ERROR] == []
    assert api.look(str(wide / name)).spec.head_dim == 64


@pytest.mark.parametrize(("name", "length"), LENGTHS.items())
def test_output_is_the_targets_own_and_acceptance_that_of_the_table(name: str, length: float, wide: Path, opened: Callable[..., Any], prompts: tuple[Prompt, ...]) -> None:
    files = opened(wide / name)
    target = load_target(wide / "tiny-target", files.spec.target_layer_ids, Placement())
    draft = Draft(Reading(files.spec), read_weights(files.spec, files.source, Placement()), target.shared)
    runs = loop.generate(draft, target, [prompt.input_ids for prompt in prompts], loop.Limits(64, (0,)))
    assert [tuple(run.tokens) for run in runs] == [prompt.reference_output_ids for prompt in prompts]
    counts = [count for run in runs for count in run.accepted]
    assert 1 + sum(counts) / len(counts) == pytest.approx(length, abs=0.03)


def test_the_wide_target_alone_gives_the_recorded_continuations(wide: Path, prompts: tuple[Prompt, ...]) -> None:
    target, limits = load_target(wide / "tiny-target", (), Placement()), loop.Limits(64, (0,))
    assert [tuple(loop.generate_plain(target, prompt.input_ids, limits)) for prompt in prompts[:8]] == [prompt.reference_output_ids for prompt in prompts[:8]]
