"""Rewritten drafts against the original in the reference engine: same tokens, same accepted counts at each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints import BONUS, FULL, GATED, PROMPTS, SLIDING, TARGET
from command import spec_convert
from speculators_convert.rewrite.receipt import verify

pytestmark = pytest.mark.engine

ACCEPTANCE = {FULL.name: 2.57, BONUS.name: 2.55, GATED.name: 2.58}
"""fixtures/README.md, right reading, 20 prompts of 64 tokens in float32."""


def smoke(folder: Path) -> dict[str, object]:
    outcome = spec_convert("smoke", folder, "--target", TARGET, "--prompts", PROMPTS, "--format", "json")
    result = outcome.json
    assert (outcome.status, result["verdict"]) == (0, "pass"), result["reasons"]
    mode = result["modes"][0]
    assert (mode["exact"], mode["total"]) == (20, 20)
    return {"acceptance_length": mode["acceptance_length"], "outcomes": mode["outcomes"], "by_position": mode["acceptance_by_position"]}


@pytest.mark.parametrize("draft", [FULL, SLIDING[0]], ids=lambda path: path.name)
def test_full_vocabulary_through_sglang_and_back(draft: Path, tmp_path: Path) -> None:
    assert spec_convert("normalize", draft, "--layout", "sglang", "--target", TARGET, "--out", tmp_path / "sglang").status == 0
    assert spec_convert("normalize", tmp_path / "sglang", "--target", TARGET, "--out", tmp_path / "back").status == 0
    original = smoke(draft)
    assert smoke(tmp_path / "sglang") == original
    assert smoke(tmp_path / "back") == original
    if draft.name in ACCEPTANCE:
        assert original["acceptance_length"] == pytest.approx(ACCEPTANCE[draft.name], abs=0.05)
    assert verify(tmp_path / "sglang") == verify(tmp_path / "back") == ()


@pytest.mark.parametrize("draft", [BONUS, GATED, SLIDING[1]], ids=lambda path: path.name)
def test_reduced_vocabulary_through_speculators(draft: Path, tmp_path: Path) -> None:
    assert spec_convert("normalize", draft, "--target", TARGET, "--out", tmp_path / "out").status == 0
    rewritten = smoke(tmp_path / "out")
    assert rewritten == smoke(draft)
    if draft.name in ACCEPTANCE:
        assert rewritten["acceptance_length"] == pytest.approx(ACCEPTANCE[draft.name], abs=0.05)
