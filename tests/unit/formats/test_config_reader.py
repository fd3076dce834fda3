"""Typed reads: a wrong value is a problem with its place, never an exception."""

from __future__ import annotations

from typing import Any

import pytest

from speculators_convert.findings import Problem
from speculators_convert.formats.base import ConfigReader
from speculators_convert.formats.places import Places, native_places


def reader(**table: Any) -> ConfigReader:
    return ConfigReader(table)


def test_what_is_absent_or_null_is_none_without_a_problem() -> None:
    config = reader(a=None)
    for key in ("a", "b"):
        assert config.integer(key) is None
        assert config.number(key) is None
        assert config.boolean(key) is None
        assert config.string(key) is None
        assert config.choice(key, ("x",)) is None
        assert config.strings(key) == ()
        assert config.integers(key) is None
        assert config.sub(key).table == {}
    assert config.problems == []


def test_good_values() -> None:
    config = reader(i=-1, n=3, f=1.5, t=True, s="x", c="b", ss=["x", ""], ii=[-1, 2], o={"a": 1})
    assert config.integer("i") == -1
    assert (config.number("n"), config.number("f")) == (3.0, 1.5)
    assert config.boolean("t") is True
    assert config.string("s") == "x"
    assert config.choice("c", ("a", "b")) == "b"
    assert config.strings("ss") == ("x", "")
    assert config.integers("ii") == (-1, 2)
    assert config.sub("o").integer("a") == 1
    assert config.problems == []


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("integer", True, "an integer"),
        ("integer", 1.0, "an integer"),
        ("integer", "1", "an integer"),
        ("integer", 1 << 63, "an integer"),
        ("number", True, "a positive number"),
        ("number", 0, "a positive number"),
        ("number", -1.0, "a positive number"),
        ("number", float("nan"), "a positive number"),
        ("number", float("inf"), "a positive number"),
        ("number", 10**400, "a positive number"),
        ("number", "1", "a positive number"),
        ("boolean", 1, "true or false"),
        ("boolean", "true", "true or false"),
        ("string", "", "a string"),
        ("string", 1, "a string"),
        ("string", "x" * 5000, "a string"),
        ("strings", "x", "a list of strings"),
        ("strings", [1], "a list of strings"),
        ("strings", [None], "a list of strings"),
        ("integers", [], "a list of integers"),
        ("integers", [1, "2"], "a list of integers"),
        ("integers", [True], "a list of integers"),
        ("integers", [1 << 31], "a list of integers"),
        ("integers", {"0": 1}, "a list of integers"),
        ("sub", [], "an object"),
        ("sub", 0, "an object"),
    ],
)
def test_bad_values_are_problems_that_say_where(method: str, value: object, expected: str) -> None:
    config = ConfigReader({"key": value}, "/outer")
    assert not getattr(config, method)("key") or method == "sub"
    (problem,) = config.problems
    assert isinstance(problem, Problem)
    assert (problem.message, problem.subject, problem.expected, problem.file, problem.pointer) == (f"key must be {expected}", "key", expected, "config.json", "/outer/key")
    assert len(str(problem.measured)) <= 120


def test_bounds_and_choice_name_what_is_allowed() -> None:
    config = reader(a=0, b="z", c=5)
    assert (config.integer("c", minimum=5, maximum=5), config.integer("c", minimum=1, maximum=4)) == (5, None)
    assert config.integer("a", minimum=1) is None
    assert config.choice("b", ("x", "y")) is None
    assert [problem.expected for problem in config.problems] == ["an integer of at least 1 and at most 4", "an integer of at least 1", "one of x, y"]


def test_a_key_that_is_read_twice_is_one_problem() -> None:
    config = reader(a="x", o=3)
    for _ in range(3):
        config.integer("a")
        config.sub("o").integer("b")
    assert [problem.pointer for problem in config.problems] == ["/a", "/o"]


def test_evidence_and_problems_show_the_files_own_spelling() -> None:
    config = ConfigReader({"block_size": "x"}, file="draft.gguf", names={"block_size": "dflash.block_size"})
    assert config.at("block_size") == "draft.gguf#/dflash.block_size"
    assert config.integer("block_size") is None
    assert (config.problems[0].subject, config.problems[0].pointer) == ("dflash.block_size", "/dflash.block_size")


def test_places_give_each_spelling_in_order() -> None:
    config = reader(block_size=7, dspark_block_size=5, dflash_config={"block_size": 6, "ids": [2, 3]})
    places = native_places(config)
    stated = [(value, source) for value, source in places.integers("block_size", "dspark_block_size") if value is not None]
    assert stated == [(7, "config.json#/block_size"), (6, "config.json#/dflash_config/block_size"), (5, "config.json#/dspark_block_size")]
    assert (places.lists("ids", shift=-1)[2]) == ((1, 2), "config.json#/dflash_config/ids minus 1")
    assert Places((config,)).strings("block_size") == [(None, "config.json#/block_size")]
