"""Text from a checkpoint on a terminal: nothing steers it, nothing hides in it."""

from __future__ import annotations

import json

import pytest

from speculators_convert.model import pretty_json, printable


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\u00ad", "\u061c", "\u180e", "\u200b", "\u202e", "\u2066", "\ufeff", "\ufff9", "\U000e0041", "\ud800"])
def test_invisible_and_steering_characters_are_spelled_out(character: str) -> None:
    assert character not in printable(f"a{character}b")
    assert printable(f"a{character}b").isprintable()


@pytest.mark.parametrize("text", ["plain", "Grüße, 世界", "tab?", "emoji 🦆"])
def test_other_text_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("character", ["\u00ad", "\U000e0041", "\u202e", "\ufffb"])
def test_json_keeps_its_meaning(character: str) -> None:
    text = pretty_json({f"k{character}": character})
    assert character not in text
    assert json.loads(text) == {f"k{character}": character}
