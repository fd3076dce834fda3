"""No check cries wolf: untouched checkpoints of the library, trained drafts and other packagings."""

import pytest
from benchmarks.detection import FIXTURES, Fixture, findings, good_fixtures
from benchmarks.draft_editor import Draft

from speculators_convert.model import Severity

TRAINED = [item for item in good_fixtures() if item.name.startswith("trained/")]


@pytest.mark.parametrize("fixture", good_fixtures(), ids=lambda fixture: fixture.name)
def test_no_warning_and_no_error_with_the_target(fixture: Fixture) -> None:
    loud = [item for item in findings(Draft.load(fixture.folder), fixture.target) if item.severity is not Severity.INFO]
    assert loud == []


@pytest.mark.parametrize("fixture", TRAINED, ids=lambda fixture: fixture.name)
def test_a_trained_draft_shows_only_known_notes(fixture: Fixture) -> None:
    codes = {item.code for item in findings(Draft.load(fixture.folder), fixture.target)}
    assert codes <= {"DSP111", "DSP260", "DSP402", "DSP404"}


def test_the_other_layout_of_each_fixture_is_refused() -> None:
    """A check that says nothing on good files must still say something on bad ones."""
    draft = Draft.load(FIXTURES / "trained/tiny-anchor-full-vanilla")
    flipped = draft.apply((("flip", "/sample_from_anchor"),))
    assert [item.code for item in findings(flipped) if item.severity is Severity.ERROR] == ["DSP203"]
