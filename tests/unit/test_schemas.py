"""Each JSON that the tool writes or reads has a schema and an example, and a schema of a release stays true."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from speculators_convert.errors import UsageError
from speculators_convert.workloads.prompt_file import parse_line

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.schema.json"))
RELEASED = sorted(path.name.removesuffix(".schema.json") for path in (ROOT / "schemas" / "released").glob("*.schema.json"))
WRITTEN_BY_PEOPLE = {"policy", "prompt", "engine"}
_WORDS = {"title", "description", "examples", "default", "$id", "$schema"}
"""Keys that do not change which documents are valid."""


def load(path: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((ROOT / "schemas" / path).read_text(encoding="utf-8"))
    return value


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_versioned_and_has_a_true_example(name: str) -> None:
    schema, example = load(f"{name}.schema.json"), load(f"examples/{name}.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(example)
    version = schema["$id"].rpartition(":")[2]
    assert schema["$id"] == f"urn:spec-convert:{name}:{version}"
    assert example.get("schema_version", version) == version


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - {"prompt"}))
def test_a_schema_refuses_an_unknown_key_and_a_wrong_type(name: str) -> None:
    schema, example = load(f"{name}.schema.json"), load(f"examples/{name}.json")
    validator = jsonschema.Draft202012Validator(schema)
    assert not validator.is_valid({**example, "unknown_key": 1})
    assert not validator.is_valid([])


@pytest.mark.parametrize(
    "line",
    [
        {"input_ids": [1]},
        {"text": "a"},
        {"input_ids": [1], "reference_output_ids": [2], "other": 1},
        {},
        {"input_ids": []},
        {"input_ids": [-1]},
        {"input_ids": [1], "text": "a"},
        {"input_ids": ["1"]},
        {"text": 1},
    ],
)
def test_the_prompt_schema_says_what_the_reader_accepts(line: dict[str, object]) -> None:
    try:
        parse_line(json.dumps(line), "x:1", lambda text: [len(text)])
        accepted = True
    except UsageError:
        accepted = False
    assert jsonschema.Draft202012Validator(load("prompt.schema.json")).is_valid(line) == accepted


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_schema_was_not_broken(name: str) -> None:
    """On a failure: undo the change, or raise the schema's version and say so in the changelog."""
    current, old = load(f"{name}.schema.json"), load(f"released/{name}.schema.json")
    if current["$id"] == old["$id"]:
        assert list(breaks(old, current, read=name in WRITTEN_BY_PEOPLE)) == []


def test_each_schema_was_frozen_at_the_release() -> None:
    assert set(RELEASED) <= set(SCHEMAS)


def breaks(old: dict[str, Any], new: dict[str, Any], *, read: bool) -> Iterator[str]:
    """What in `new` breaks those who rely on `old`: readers of a written document, writers of one that is read.

    Allowed: words, and new properties; those of a document that people write must be optional.
    """
    yield from _compare(_flat(old, old), _flat(new, new), "", read)


def _flat(node: Any, root: dict[str, Any], seen: tuple[str, ...] = ()) -> Any:
    """The schema without references and words."""
    if isinstance(node, dict):
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return {"recursive": name} if name in seen else _flat({**root["$defs"][name], **{key: value for key, value in node.items() if key != "$ref"}}, root, (*seen, name))
        return {
            key: ({name: _flat(item, root, seen) for name, item in value.items()} if key == "properties" else _flat(value, root, seen))
            for key, value in node.items()
            if key not in _WORDS and key != "$defs"
        }
    return [_flat(item, root, seen) for item in node] if isinstance(node, list) else node


def _compare(old: Any, new: Any, at: str, read: bool) -> Iterator[str]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield f"{at or '/'}: {old} became {new}"
        return
    old_properties, new_properties = old.get("properties", {}), new.get("properties", {})
    for name in old_properties:
        if name not in new_properties:
            yield f"{at}/{name} is gone"
        else:
            yield from _compare(old_properties[name], new_properties[name], f"{at}/{name}", read)
    was, now = set(old.get("required", ())), set(new.get("required", ()))
    if not read:
        yield from (f"{at}/{name} may now be absent" for name in sorted(was - now))
    yield from (f"{at}/{name} is now demanded" for name in sorted(now - was) if read or name in old_properties)
    for key in sorted((old.keys() | new.keys()) - {"properties", "required"}):
        yield from _compare(old.get(key), new.get(key), f"{at}:{key}", read)


BASE: dict[str, Any] = {
    "type": "object", "required": ["a"], "$defs": {"E": {"type": "object", "properties": {"x": {"enum": ["p", "q"]}}, "required": ["x"]}},
    "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"type": "integer", "minimum": 0}, "e": {"$ref": "#/$defs/E"}},
}  # fmt: skip


def _changed(*path: str, value: Any = None) -> dict[str, Any]:
    schema = copy.deepcopy(BASE)
    node = schema
    for key in path[:-1]:
        node = node[key]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return schema


@pytest.mark.parametrize(
    "new",
    [
        _changed("properties", "b"),
        _changed("properties", "b", "type", value="string"),
        _changed("properties", "b", "minimum", value=1),
        _changed("properties", "a", "pattern", value="^b"),
        _changed("$defs", "E", "properties", "x", "enum", value=["p"]),
        _changed("$defs", "E", "properties", "x"),
        _changed("required", value=["a", "b"]),
        _changed("additionalProperties", value=False),
    ],
)
def test_a_breaking_change_is_seen(new: dict[str, Any]) -> None:
    assert list(breaks(BASE, new, read=True))
    assert list(breaks(BASE, new, read=False))


def test_what_breaks_one_side_only() -> None:
    optional = _changed("required", value=[])
    assert list(breaks(BASE, optional, read=True)) == []
    assert list(breaks(BASE, optional, read=False)) == ["/a may now be absent"]
    more = _changed("properties", "c", value={"type": "string"})
    assert list(breaks(BASE, more, read=True)) == list(breaks(BASE, more, read=False)) == []
    more["required"] = ["a", "c"]
    assert list(breaks(BASE, more, read=False)) == []
    assert list(breaks(BASE, more, read=True)) == ["/c is now demanded"]


def test_words_do_not_break() -> None:
    assert list(breaks(BASE, _changed("properties", "a", "description", value="other words"), read=True)) == []
