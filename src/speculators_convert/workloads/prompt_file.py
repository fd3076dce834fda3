"""Prompt files: one JSON object a line, with `input_ids` or `text`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speculators_convert.container import strict_json
from speculators_convert.errors import SourceError, UsageError
from speculators_convert.model import JsonValue
from speculators_convert.results.smoke import Prompt
from speculators_convert.sources.bounded import read_bounded
from speculators_convert.workloads.base import Item
from speculators_convert.workloads.tokens import Encode, load_encoder

__all__ = ["items", "json_lines", "parse_line", "read_prompts"]
_REFERENCE_KEYS = ("reference_output_ids", "greedy_output_ids_float32")
_KEYS = ("input_ids", "text")
MAX_FILE_BYTES = 256 * 1024 * 1024


def items(path: Path) -> tuple[Item, ...]:
    """The prompts of a file, not tokenized; named by their line."""
    return tuple(_item(line, where, name) for name, where, line in _filled(path))


def read_prompts(path: Path, tokenizer_folder: Path) -> tuple[Prompt, ...]:
    """The prompts of a file; the tokenizer in `tokenizer_folder` is loaded when a line has `text`."""
    encoders: list[Encode] = []

    def encode(value: str) -> list[int]:
        if not encoders:
            encoders.append(load_encoder(tokenizer_folder))
        return encoders[0](value)

    return tuple(parse_line(line, where, encode) for _, where, line in _filled(path))


def parse_line(line: str, where: str, encode: Encode) -> Prompt:
    """One prompt; `UsageError` names `where` and what is wrong."""
    item = _item(line, where, "")
    ids = item.input_ids or tuple(encode(item.text))
    if not ids:
        raise UsageError("the prompt is empty", where=where, measured="0 tokens", expected="1 or more")
    return Prompt(input_ids=ids, reference_output_ids=item.reference_output_ids)


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Place and object of each line that is not empty."""
    for _, where, line in _filled(path):
        yield where, _object(line, where)


def _filled(path: Path) -> Iterator[tuple[str, str, str]]:
    """Line number, place and text of each line that is not empty."""
    try:
        text = read_bounded(path, MAX_FILE_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the prompt file ({error})", where=str(path), hint="pass a UTF-8 file with one JSON object a line") from error
    lines = [(str(number), f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError("the prompt file has no prompts", where=str(path), hint='write one {"input_ids": [...]} or {"text": "..."} a line')
    yield from lines


def _item(line: str, where: str, name: str) -> Item:
    value = _object(line, where)
    present = [key for key in _KEYS if key in value]
    if len(present) != 1:
        raise UsageError("the line needs input_ids or text, and not both", where=where, measured=" and ".join(present) or "neither", expected="one of them")
    reference = next((_ids(value[key], where, key) for key in _REFERENCE_KEYS if value.get(key) is not None), None)
    stated = value[present[0]]
    if present == ["text"]:
        if not isinstance(stated, str):
            raise UsageError("text must be a string", where=where, measured=type(stated).__name__, expected="string")
        return Item(name, text=stated, reference_output_ids=reference)
    ids = _ids(stated, where, "input_ids")
    if not ids:
        raise UsageError("the prompt is empty", where=where, measured="0 tokens", expected="1 or more")
    return Item(name, input_ids=ids, reference_output_ids=reference)


def _object(line: str, where: str) -> dict[str, JsonValue]:
    try:
        value = strict_json.loads(line.encode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the line is not JSON ({error})", where=where) from error
    if not isinstance(value, dict):
        raise UsageError("the line is not a JSON object", where=where, measured=type(value).__name__, expected="object")
    return value


def _ids(value: JsonValue, where: str, key: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 31 for item in value):
        raise UsageError(f"{key} must be a list of token ids", where=where, measured=repr(value)[:80], expected="integers from 0")
    return tuple(value)
