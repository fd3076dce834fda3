"""Text to a target's token ids, through its own tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from speculators_convert.container.strict_json import loads
from speculators_convert.errors import SmokeError, SourceError, UsageError
from speculators_convert.model import JsonValue
from speculators_convert.workloads.base import Item

Encode = Callable[[str], list[int]]
TEMPLATE_FILE = "chat_template.json"
_ANY_TEXT = "a"


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in `folder`; never runs code from it. `SmokeError` also where transformers makes an empty one of the model's kind, for want of files."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    hint = "add tokenizer.json to the target's folder, or give the prompts as input_ids"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        empty = not tokenizer.encode(_ANY_TEXT, add_special_tokens=False)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        raise SmokeError(f"the target has no tokenizer that can be loaded ({why})", where=str(folder), hint=hint) from error
    if empty:
        raise SmokeError("the target's tokenizer gives no token for any text", where=str(folder), measured=f"no token for {_ANY_TEXT!r}", expected="a tokenizer's files", hint=hint)
    return tokenizer


def load_encoder(folder: Path) -> Encode:
    """Text to token ids with the tokenizer in `folder`."""
    tokenizer = load_tokenizer(folder)
    return lambda text: [int(token) for token in tokenizer.encode(text)]


class Encoder:
    """Items to token ids. Tokenizer and template are loaded when the first text comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._folder)

    @cached_property
    def _template(self) -> tuple[str | None, bool]:
        """The chat template, and whether it takes a message in parts only: the tokenizer's, else a processor's, as models that see images have."""
        own = self._tokenizer.chat_template
        return (own, False) if own else (_processor_template(self._folder / TEMPLATE_FILE), True)

    def ids(self, item: Item) -> tuple[int, ...]:
        """The item's own ids, else its text: as one user message where it is meant so and the target has a chat template."""
        if item.input_ids:
            return item.input_ids
        template, parted = self._template
        if item.image is not None and not template:
            raise UsageError("the target has no chat template, so that an image has no place", where=str(self._folder), hint="take a target that sees images")
        if not item.chat or not template:
            return tuple(int(token) for token in self._tokenizer.encode(item.text, verbose=False))
        parts: JsonValue = [*([{"type": "image"}] if item.image else []), {"type": "text", "text": item.text}]
        content = parts if parted or item.image else item.text
        try:
            text = self._tokenizer.apply_chat_template([{"role": "user", "content": content}], chat_template=template, tokenize=False, add_generation_prompt=True)
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise UsageError(f"the target's chat template fails ({why})", where=str(self._folder), hint="mend chat_template, or give the prompts as input_ids") from error
        return tuple(int(token) for token in self._tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _processor_template(path: Path) -> str | None:
    """`chat_template` of a processor's file; None when there is none."""
    try:
        value = loads(path.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        raise SourceError(f"cannot read the target's chat template ({error})", where=str(path)) from error
    template = value.get("chat_template") if isinstance(value, dict) else None
    return template if isinstance(template, str) else None


def max_positions(folder: Path) -> int | None:
    """`max_position_embeddings` of the target, of its text part where it has several; None when the config does not say."""
    path = folder / "config.json"
    try:
        config = loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read the target's config ({error})", where=str(path)) from error
    parts = [config, config.get("text_config")] if isinstance(config, dict) else []
    found = [part["max_position_embeddings"] for part in parts if isinstance(part, dict) and type(part.get("max_position_embeddings")) is int]
    return min(found, default=None)
