"""A JSON pointer gives the line of its key, whatever the layout of the file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.container.json_lines import line_of

TEXT = """{
  "a": 1,
  "b": {
    "c": [1,
          {"d/e": "x, \\"y\\": {"}],
    "f~g": null
  }, "h": 2
}
"""


@pytest.mark.parametrize(
    ("pointer", "line"),
    [("", 1), ("/a", 2), ("/b", 3), ("/b/c", 4), ("/b/c/0", 4), ("/b/c/1", 5), ("/b/c/1/d~1e", 5), ("/b/f~0g", 6), ("/h", 7), ("/b/absent", 3), ("/absent/x", 1)],
)
def test_the_line_of_a_pointer(pointer: str, line: int) -> None:
    assert line_of(TEXT, pointer) == line


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_each_pointer_of_any_document_stands_where_its_key_is_written(value: object) -> None:
    text = json.dumps(value, indent=1)
    lines = text.split("\n")
    for pointer, key in _pointers(value):
        assert lines[line_of(text, pointer) - 1].strip().startswith(key)


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    assert line_of(text, "/a/0") >= 1


def _pointers(value: object, at: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        rows = [(f"{at}/{_escape(key)}", json.dumps(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        rows = [(f"{at}/{index}", "", item) for index, item in enumerate(value)]
    else:
        return []
    return [pair for pointer, key, item in rows for pair in ((pointer, key), *_pointers(item, pointer))]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
