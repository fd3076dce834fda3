"""Fixtures of the normalize tests; `normalizing` has their functions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from normalizing import DRAFTS, FIXTURES, clean_copy


@pytest.fixture(params=DRAFTS)
def draft(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Each fixture draft as it was published: without the oracle that lies beside it."""
    return clean_copy(FIXTURES / request.param, tmp_path / "draft")


@pytest.fixture
def fixtures_folder() -> Path:
    """The fixtures as they lie in the repository."""
    return FIXTURES
