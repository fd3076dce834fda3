"""Text from a checkpoint on a terminal: nothing steers it, nothing hides in it."""

from __future__ import annotations

import json
import os

import pytest
from pydantic_core import from_json

from speculators_convert.model import canonical_json, packed, pretty_json, printable, unpacked
from speculators_convert.results.smoke import SmokeOptions


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


def test_what_is_not_utf8_is_text_that_every_json_reader_takes() -> None:
    value = {"path": os.fsdecode(b"/caf\xe9")}
    for data in (pretty_json(value).encode(), canonical_json(value)):
        assert from_json(data) == {"path": "/caf\\udce9"}  # serde's reader, which refuses a lone surrogate


def test_processes_of_the_package_hand_over_such_names_whole() -> None:
    stated = SmokeOptions(target=os.fsdecode(b"/caf\xe9"), modes=("eager", "graph"))
    line = packed(stated)
    assert (line.isascii(), b"\n" in line) == (True, False)
    assert unpacked(SmokeOptions, line) == stated
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        unpacked(SmokeOptions, line[:-5])
