"""Prompt files: one JSON object a line, with `input_ids` or `text`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speculators_convert.errors import SmokeError, SourceError, UsageError
from speculators_convert.model import JsonValue
from speculators_convert.smoke_result import Prompt

_REFERENCE_KEYS = ("reference_output_ids", "greedy_output_ids_float32")
_KEYS = ("input_ids", "text")
MAX_FILE_BYTES = 256 * 1024 * 1024
Encode = Callable[[str], list[int]]


def read_prompts(path: Path, tokenizer_folder: Path) -> tuple[Prompt, ...]:
    """The prompts of a file; the tokenizer in `tokenizer_folder` is loaded when a line has `text`."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError("the prompt file is too large", where=str(path), measured=f"{path.stat().st_size} bytes", expected=f"at most {MAX_FILE_BYTES}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the prompt file ({error})", where=str(path), hint="pass a UTF-8 file with one JSON object a line") from error
    encoders: list[Encode] = []

    def encode(value: str) -> list[int]:
        if not encoders:
            encoders.append(load_encoder(tokenizer_folder))
        return encoders[0](value)

    prompts = tuple(parse_line(line, f"{path}:{number}", encode) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    if not prompts:
        raise UsageError("the prompt file has no prompts", where=str(path), hint='write one {"input_ids": [...]} or {"text": "..."} a line')
    return prompts


def parse_line(line: str, where: str, encode: Encode) -> Prompt:
    """One prompt; `UsageError` names `where` and what is wrong."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the line is not JSON ({error})", where=where) from error
    if not isinstance(value, dict):
        raise UsageError("the line is not a JSON object", where=where, measured=type(value).__name__, expected="object")
    present = [key for key in _KEYS if key in value]
    if len(present) != 1:
        raise UsageError("the line needs input_ids or text, and not both", where=where, measured=" and ".join(present) or "neither", expected="one of them")
    ids = _ids(value["input_ids"], where, "input_ids") if present == ["input_ids"] else _encoded(value["text"], where, encode)
    if not ids:
        raise UsageError("the prompt is empty", where=where, measured="0 tokens", expected="1 or more")
    reference = next((_ids(value[key], where, key) for key in _REFERENCE_KEYS if value.get(key) is not None), None)
    return Prompt(input_ids=ids, reference_output_ids=reference)


def load_encoder(folder: Path) -> Encode:
    """Text to token ids with the tokenizer in `folder`."""
    tokenizer = load_tokenizer(folder)
    return lambda text: [int(token) for token in tokenizer.encode(text)]


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in `folder`; never runs code from it."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        hint = "add tokenizer.json to the target's folder, or give the prompts as input_ids"
        raise SmokeError(f"the target has no tokenizer that can be loaded ({str(error).splitlines()[0][:160]})", where=str(folder), hint=hint) from error


def _encoded(value: JsonValue, where: str, encode: Encode) -> tuple[int, ...]:
    if not isinstance(value, str):
        raise UsageError("text must be a string", where=where, measured=type(value).__name__, expected="string")
    return tuple(encode(value))


def _ids(value: JsonValue, where: str, key: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 31 for item in value):
        raise UsageError(f"{key} must be a list of token ids", where=where, measured=repr(value)[:80], expected="integers from 0")
    return tuple(value)
