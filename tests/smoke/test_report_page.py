"""`smoke --report` writes the page of the result that it wrote as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import spec_convert
from smoke_results import ROOT
from speculators_convert.report.smoke_html import smoke_html
from speculators_convert.results.smoke import SmokeResult

pytest.importorskip("torch")


def test_the_page_is_that_of_the_result(tmp_path: Path) -> None:
    done = spec_convert("smoke", "--engine", "reference", "--max-new-tokens", 8, "--out", tmp_path / "result.json", "--report", tmp_path / "result.html")
    assert done.status == 0, done.stderr
    result = SmokeResult.model_validate_json((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (tmp_path / "result.html").read_text(encoding="utf-8") == smoke_html(result)
    assert result.geometry is not None
    assert (result.geometry.gamma, result.geometry.query_slots) == (6, 6)


def test_a_page_that_cannot_be_written_is_an_error_with_the_path(tmp_path: Path) -> None:
    done = spec_convert("smoke", "--engine", "reference", "--max-new-tokens", 8, "--report", tmp_path / "absent" / "result.html")
    assert done.status == 3
    assert str(tmp_path / "absent" / "result.html") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_cannot_start_has_a_page_too(tmp_path: Path) -> None:
    draft = ROOT / "fixtures/trained/tiny-bonus-reduced-vanilla"
    done = spec_convert("smoke", draft, "--engine", "reference", "--target", tmp_path, "--report", tmp_path / "result.html")
    assert done.status == 4
    page = (tmp_path / "result.html").read_text(encoding="utf-8")
    assert "Not run</h1>" in page
    assert "no tokenizer that can be loaded" in page
