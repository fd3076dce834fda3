"""The claims that `tools/gpu_plugin.py --report` draws from raw rows, right and wrong ones. Needs no SGLang."""

import importlib.util
import sys
from types import ModuleType

import pytest
from sglang_harness.environment import ROOT, TRAINED

DRAFT = "tiny-anchor-full-vanilla"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("gpu_plugin", ROOT / "tools/gpu_plugin.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["gpu_plugin"] = module
    specification.loader.exec_module(module)
    return module


def server(name: str, tokens: int = 1, accepted: int = 30) -> dict:
    row = {"request": "a", "output_ids": [tokens] * 64, "verify_steps": 20, "accepted": accepted}
    return {"kind": "server", "name": name, "draft": DRAFT, "command": ["--model-path", str(TRAINED / "tiny-target")], "rows": {"greedy": [row] * 80, "greedy batched": [row] * 80}}


def reference(counts: list[int]) -> dict:
    return {"kind": "reference", "name": f"{DRAFT}.reference", "draft": DRAFT, "accepted": [counts] * 80}


def verdicts(tool: ModuleType, lines: list[dict]) -> dict[str, bool]:
    return {claim: holds for claim, holds, _ in tool.report(lines)}


def test_equal_runs_hold(tool: ModuleType) -> None:
    found = verdicts(tool, [server(f"{DRAFT}.eager"), server(f"{DRAFT}.graph"), reference([1, 2])])
    assert found == {
        f"{DRAFT}.eager: acceptance does not depend on concurrency": True,
        f"{DRAFT}.eager: acceptance is the reference engine's": True,
        f"{DRAFT}.graph: graph gives eager's tokens": True,
        f"{DRAFT}.graph: acceptance does not depend on concurrency": True,
        f"{DRAFT}.graph: acceptance is the reference engine's": True,
    }


def test_other_tokens_other_acceptance_and_failures_do_not_hold(tool: ModuleType) -> None:
    lines = [server(f"{DRAFT}.eager"), server(f"{DRAFT}.graph", tokens=2), reference([2, 2]), {"kind": "failed", "name": "x", "draft": DRAFT, "error": "why"}]
    found = verdicts(tool, lines)
    assert found["x ran"] is False
    assert found[f"{DRAFT}.graph: graph gives eager's tokens"] is False
    assert found[f"{DRAFT}.graph: acceptance is the reference engine's"] is False


def test_agreement_has_a_floor(tool: ModuleType) -> None:
    rows = {"kind": "agreement", "name": "a", "draft": DRAFT}
    assert list(verdicts(tool, [{**rows, "rows": [[98, 100], [97, 100]]}]).values()) == [True]
    assert list(verdicts(tool, [{**rows, "rows": [[96, 100], [97, 100]]}]).values()) == [False]


def test_paired_interval_sees_a_shift_that_unpaired_spread_would_hide(tool: ModuleType) -> None:
    left = [1 + index % 10 for index in range(80)]
    low, high = tool.paired_interval(left, [value - 0.1 for value in left])
    assert 0 < low <= high < 0.2


def test_slices_cover_each_fixture_eager_and_graph(tool: ModuleType) -> None:
    names = {item.name for item in tool.slices()}
    assert {f"{draft}.{mode}" for draft in tool.FIXTURES for mode in ("eager", "graph")} <= names
    assert len(names) == len(tool.slices())
    assert len({tuple(prompt) for prompt in tool.prompts()}) == len(tool.prompts()) == 124
