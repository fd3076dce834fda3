"""Each input that fuzzing kept, through the same functions, without atheris."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ))

import targets  # noqa: E402

FILES = sorted(path for path in (FUZZ / "corpus").glob("*/*") if path.is_file())


def test_there_is_a_corpus_for_each_target() -> None:
    assert {path.parent.name for path in FILES} == set(targets.TARGETS)


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_corpus(name: str) -> None:
    for path in FILES:
        if path.parent.name == name:
            try:
                targets.TARGETS[name](path.read_bytes())
            except Exception as error:  # noqa: BLE001 (the file's name is what a reader needs)
                pytest.fail(f"{path.name}: {type(error).__name__}: {error}")
    targets.remove_folder()
    targets._folder.cache_clear()
