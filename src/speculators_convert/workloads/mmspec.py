"""MMSpec: a local copy of one split of the dataset, `mmspec.jsonl` beside `images/`.

Form: https://github.com/killthefullmoon/MMSpec, dataset/README.md: one object a line with `id`, `image`, `turns`, `category`
and `topic`; the full split has 600 lines, 100 in each of six topics. The dataset is not shipped: its parts have licences of their own.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.model import JsonValue
from speculators_convert.sources.base import safe_path
from speculators_convert.workloads.base import Image, Item
from speculators_convert.workloads.prompt_file import json_lines

NAME, FILE, IMAGES = "mmspec", "mmspec.jsonl", "images"


def items(folder: Path) -> tuple[Item, ...]:
    """The first turn of each sample, by id. `UsageError` names a line that is not of the form, `SourceError` an image that is not there."""
    found: dict[str, Item] = {}
    for where, value in json_lines(folder / FILE):
        item = _item(value, where, folder / IMAGES)
        if item.name in found:
            raise UsageError("the id stands twice", where=where, measured=item.name, expected="ids that differ")
        found[item.name] = item
    return tuple(found[name] for name in sorted(found))


def read_image(path: Path) -> Image:
    """Bytes and type of an image; `UsageError` when its name says no type."""
    kind = mimetypes.guess_type(path.name)[0] or ""
    if not kind.startswith("image/"):
        raise UsageError("the image's name does not say its type", where=str(path), measured=kind or "none", expected="a name such as photo.jpg")
    try:
        return Image(path.read_bytes(), kind)
    except OSError as error:
        raise SourceError(f"cannot read the image ({error.strerror})", where=str(path)) from error


def _item(value: dict[str, JsonValue], where: str, images: Path) -> Item:
    name, topic, image, turns = (value.get(key) for key in ("id", "topic", "image", "turns"))
    for key, text in (("id", name), ("topic", topic), ("image", image)):
        if not isinstance(text, str) or not text:
            raise UsageError(f"{key} must be a string", where=where, measured=repr(text)[:80], expected="text")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise UsageError("turns must be a list of texts", where=where, measured=repr(turns)[:80], expected="one text or more")
    return Item(str(name), str(topic), turns[0], image=_image(images, str(image), where), chat=True)


def _image(images: Path, name: str, where: str) -> Path:
    """The image's path: inside `images`, a file that is there."""
    path = images / safe_path(name)
    try:
        there = path.is_file() and path.resolve().is_relative_to(images.resolve())
    except (OSError, ValueError):
        there = False
    if not there:
        raise SourceError("the image is not there", where=str(path), hint=f"{where} names it; copy images/ beside {FILE}")
    return path
