"""The long pair: the trained fixtures with room for all of MT-Bench, and nothing else changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speculators_convert import api
from speculators_convert.model import Severity
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import loop
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import load_target
from speculators_convert.workloads import load

ROOT = Path(__file__).parents[2]
TRAINED = ROOT / "fixtures" / "trained"
NAME = "tiny-sliding-causal"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder, and what the tool said."""
    out = tmp_path_factory.mktemp("long")
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "make_long_pair.py"), str(out)], capture_output=True, text=True, check=True)
    return out, done.stdout


def changes(left: Any, right: Any, path: str = "") -> set[tuple[str, Any, Any]]:
    """Where two documents differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {item for key in left.keys() | right.keys() for item in changes(left.get(key), right.get(key), f"{path}.{key}")}
    return set() if left == right else {(path, left, right)}


def test_the_lengths_are_all_that_changed(made: tuple[Path, str]) -> None:
    before = {path.relative_to(TRAINED): path for path in TRAINED.rglob("*") if path.is_file() and path.parent != TRAINED}
    after = {path.relative_to(made[0]): path for path in made[0].rglob("*") if path.is_file()}
    assert before.keys() == after.keys()
    for name, path in before.items():
        if name.name not in ("config.json", "tokenizer_config.json"):
            assert path.read_bytes() == after[name].read_bytes()
            continue
        ((where, short, long),) = changes(json.loads(path.read_text()), json.loads(after[name].read_text()))
        assert (where.rpartition(".")[2] in ("max_position_embeddings", "model_max_length"), short, long) == (True, 512, 4096)


def test_all_of_mt_bench_fits_and_what_did_not_before_is_named(made: tuple[Path, str]) -> None:
    short, long = made[1].splitlines()
    assert "148 of 160 requests fit with 64 output tokens, the longest has 433; skipped: 124.2 (517 tokens)" in short
    assert "160 of 160 requests fit with 64 output tokens, the longest has 826" in long


@pytest.mark.parametrize("name", sorted(path.name for path in TRAINED.iterdir() if path.is_dir() and path.name != "tiny-target"))
def test_draft_and_target_still_fit_each_other(name: str, made: tuple[Path, str]) -> None:
    report = api.inspect(str(made[0] / name), target=str(made[0] / "tiny-target"))
    assert [finding.code for finding in report.findings if finding.severity is Severity.ERROR] == []


def test_output_is_the_fixtures_and_past_512_positions_still_the_targets_own(made: tuple[Path, str], opened: Callable[..., Any], prompts: tuple[Prompt, ...]) -> None:
    files = opened(made[0] / NAME)
    target = load_target(made[0] / "tiny-target", files.spec.target_layer_ids, Placement())
    draft = Draft(Reading(files.spec), read_weights(files.spec, files.source, Placement()), target.shared)
    short, limits = [prompt.input_ids for prompt in prompts[:4]], loop.Limits(64, (0,))
    assert [tuple(run.tokens) for run in loop.generate(draft, target, short, limits)] == [prompt.reference_output_ids for prompt in prompts[:4]]
    longest = sorted(load("mt-bench", made[0] / "tiny-target", output_tokens=64, both_turns=True).requests, key=lambda item: len(item.input_ids))[-3:]
    assert min(len(item.input_ids) for item in longest) > 512
    long, limits = [item.input_ids for item in longest], loop.Limits(24, (0,))
    assert [run.tokens for run in loop.generate(draft, target, long, limits)] == [loop.generate_plain(target, ids, limits) for ids in long]
