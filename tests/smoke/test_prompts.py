"""Prompt files: both kinds of lines, and errors that name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculators_convert.errors import SmokeError, SourceError, UsageError
from speculators_convert.results.smoke import Prompt
from speculators_convert.workloads.prompt_file import read_prompts

TARGET = Path(__file__).parents[2] / "fixtures" / "trained" / "tiny-target"


def test_ids_text_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"input_ids": [5, 6], "reference_output_ids": [7]}\n\n{"text": "def f(self):"}\n')
    first, second = read_prompts(file, TARGET)
    assert first == Prompt(input_ids=(5, 6), reference_output_ids=(7,))
    assert len(second.input_ids) > 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("{}", "measured neither"),
        ('{"input_ids": [1], "text": "a"}', "measured input_ids and text"),
        ('{"input_ids": []}', "the prompt is empty"),
        ('{"input_ids": [true]}', "must be a list of token ids"),
        ('{"input_ids": [-1]}', "must be a list of token ids"),
        ('{"input_ids": "1 2"}', "must be a list of token ids"),
        ('{"text": 3}', "text must be a string"),
        ('{"text": ""}', "the prompt is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"input_ids": [5]}\n' + line + "\n")
    with pytest.raises(UsageError, match=message) as caught:
        read_prompts(file, TARGET)
    assert caught.value.where == f"{file}:2"


def test_an_empty_file_a_missing_file_and_a_missing_tokenizer(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n")
    with pytest.raises(UsageError, match="has no prompts"):
        read_prompts(file, TARGET)
    with pytest.raises(SourceError, match="cannot read"):
        read_prompts(tmp_path / "none.jsonl", TARGET)
    file.write_text('{"text": "a"}')
    with pytest.raises(SmokeError, match="no tokenizer"):
        read_prompts(file, tmp_path)
