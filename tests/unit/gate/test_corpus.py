"""The gate over the whole corpus of defects: no checkpoint with an error passes, and every report of it follows its schema and points into a file that is there."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from benchmarks.draft_editor import Draft

from speculators_convert.model import Severity
from speculators_convert.publish.check import GateRequest, gate
from speculators_convert.report import reporters

FIXTURES = Path(__file__).parents[3] / "fixtures"
SARIF = jsonschema.Draft202012Validator(json.loads((Path(__file__).parents[2] / "data/sarif/sarif-2.1.0.json").read_text(encoding="utf-8")))
BAD = sorted(item for item in (FIXTURES / "bad").iterdir() if item.is_dir() and "settings" not in json.loads((item / "recipe.json").read_text()))


def _written(draft: Draft, folder: Path) -> Path:
    for name, data in draft.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("defect", BAD, ids=lambda folder: folder.name)
def test_no_defect_of_severity_error_passes(defect: Path, tmp_path: Path) -> None:
    recipe, expected = json.loads((defect / "recipe.json").read_text()), json.loads((defect / "expected.json").read_text())["findings"]
    edited = Draft.load(FIXTURES / recipe["base"]).apply(tuple(recipe["edits"]))
    draft = _written(edited, tmp_path / "draft")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"name": "corpus", "tp_degrees": list(edited.tp)}))
    target = None
    if "target" in recipe:
        target = str(_written(Draft.load(FIXTURES / recipe["target"]).apply(tuple(recipe.get("target_edits", ()))), tmp_path / "target"))
    answer = gate(GateRequest(str(draft), policy=str(policy), target=target))
    errors = {code for code, severity in expected.items() if severity == "error"}
    assert errors <= {item.code for item in answer.failing}
    if errors:
        assert answer.outcome == "fail"
    assert answer.report is not None
    if answer.outcome == "pass":
        assert answer.report.worst() is not Severity.ERROR
    log = json.loads(reporters()["sarif"].render(answer))
    SARIF.validate(log)
    for result in log["runs"][0]["results"]:
        place = result["locations"][0]["physicalLocation"]
        path = Path(place["artifactLocation"]["uri"].removeprefix("file://"))
        assert path.exists() or not any(draft.glob(path.name)), place
        if line := place.get("region", {}).get("startLine"):
            assert line <= len(path.read_bytes().split(b"\n"))
    for item in reporters().values():
        assert item.render(answer)


@pytest.mark.parametrize("name", ["tiny-anchor-full-vanilla", "tiny-anchor-reduced-gated", "tiny-bonus-reduced-vanilla"])
def test_the_trained_drafts_pass(name: str) -> None:
    assert gate(GateRequest(str(FIXTURES / "trained" / name), target=str(FIXTURES / "trained" / "tiny-target"))).outcome == "pass"
