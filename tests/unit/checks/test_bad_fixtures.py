"""Each folder of fixtures/bad is a test: a good checkpoint, a few edits, and exactly the findings that they add."""

import json
from pathlib import Path

import pytest
from benchmarks.detection import FIXTURES, findings
from benchmarks.draft_editor import Draft

from speculators_convert.checks import CHECKS
from speculators_convert.findings import Finding
from speculators_convert.spec import Settings

BAD = sorted(item for item in (FIXTURES / "bad").iterdir() if item.is_dir())


def added(folder: Path) -> list[Finding]:
    recipe = json.loads((folder / "recipe.json").read_text())
    deep = recipe.get("deep", False)
    base = Draft.load(FIXTURES / recipe["base"])
    target = Draft.load(FIXTURES / recipe["target"]) if "target" in recipe else None
    untouched = {(item.code, item.message, item.measured, item.expected) for item in findings(base, target, deep=deep)}
    edited = target.apply(tuple(recipe.get("target_edits", ()))) if target else None
    found = findings(base.apply(tuple(recipe["edits"])), edited, Settings.model_validate(recipe.get("settings", {})), deep=deep)
    return [item for item in found if (item.code, item.message, item.measured, item.expected) not in untouched]


@pytest.mark.parametrize("folder", BAD, ids=lambda folder: folder.name)
def test_a_bad_fixture_gives_exactly_the_findings_it_lists(folder: Path) -> None:
    found = added(folder)
    assert {item.code: item.severity.value for item in found} == json.loads((folder / "expected.json").read_text())["findings"]
    assert folder.name.split("-")[0] in {item.code for item in found}
    for item in found:
        assert item.message
        assert item.hint
        assert item.measured or item.expected or item.file


OUTSIDE_MEMORY = {"DSP024"}
"""Needs a link on disk: see test_link_out_of_the_folder."""


def test_each_code_has_a_bad_fixture() -> None:
    assert {folder.name.split("-")[0] for folder in BAD} | OUTSIDE_MEMORY == set(CHECKS)


def test_link_out_of_the_folder(tmp_path: Path) -> None:
    from speculators_convert import api  # noqa: PLC0415

    folder = tmp_path / "draft"
    folder.mkdir()
    (tmp_path / "outside.json").write_text("{}")
    (folder / "config.json").symlink_to(tmp_path / "outside.json")
    found = api.inspect(str(folder)).findings
    assert [(item.code, item.severity.value, item.file) for item in found if item.code == "DSP024"] == [("DSP024", "error", "config.json")]
