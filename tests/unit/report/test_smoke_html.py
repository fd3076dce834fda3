"""The page of a smoke result: all that the result says stands on it, and nothing of it is markup."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from smoke_results import EXAMPLE, HOSTILE, ROOT, everything, example, infected
from speculators_convert.model import printable
from speculators_convert.report.block_svg import block_drawing, block_sentence
from speculators_convert.report.smoke_html import smoke_html
from speculators_convert.results.smoke import Block, SmokeResult
from speculators_convert.spec import Anchor

SECTIONS = ("claims", "block", "acceptance", "equivalence", "prompts", "servers", "run", "checkpoints")
VOID = {"br", "meta", "wbr"}


class Page(HTMLParser):
    """The elements of a page; fails when they do not nest."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        """All that is read."""
        return " ".join(self.words)


def names(markup: str, attribute: str) -> list[str | None]:
    return [value for name, value in Page(markup).attributes if name == attribute]


def test_the_verdict_and_its_reasons_come_first() -> None:
    page = smoke_html(everything())
    order = [page.index(words) for words in ("\u2717 Fail</h1>", "measured 1 defects, expected 0 defects", "last lines of the log:\nTraceback", "<nav", 'id="claims"')]
    assert order == sorted(order)
    assert "<title>Fail: smoke of fixtures/" in page


@pytest.mark.parametrize("result", [example(), everything()], ids=["example", "everything"])
def test_each_section_is_there_once_and_linked(result: SmokeResult) -> None:
    page = smoke_html(result)
    assert [name for name in names(page, "id") if name in SECTIONS] == list(SECTIONS)
    assert names(page, "href") == [f"#{name}" for name in SECTIONS]


def test_the_numbers_of_the_result_stand_in_the_tables() -> None:
    result = everything()
    page = Page(smoke_html(result))
    rows, joined = page.rows, Page(smoke_html(result).replace("<wbr>", "")).text
    for item in result.comparisons:
        assert [item.name, item.measured, item.expected, "\u2713 holds" if item.holds else "\u2717 fails"] in rows
    mode, counts = result.modes[2], lambda mode: [f"{count:,}" for count in (mode.verify_steps, mode.drafted_tokens, mode.accepted_tokens)]
    seconds = [f"{mode.seconds:.1f} s", f"{mode.target_only_seconds:.1f} s"]
    assert ["ragged tp 2, 8 at once", f"{mode.acceptance_length:.3f}", "18 of 20", *counts(mode), *seconds, "drafted-tp2"] in rows
    assert ["15", "33.7%", "93.0%"] in rows
    assert ["ragged tp 2, 8 at once", "plain", "bfloat16", "16 steps", "18", "1", "1"] in rows
    assert ["ragged tp 2, 8 at once", "null draft", "bfloat16", "16 steps", "20", "0", "0"] in rows
    assert ["ragged tp 2, 8 at once", "plain", "0", "17", "104", "99", "+0.50", "-1.25", "tie"] in rows
    assert ["ragged tp 2, 8 at once", "plain", "1", "3", "output ends", "7", "\u2013", "\u2013", "defect"] in rows
    assert ["eager tp 1, sampled", "0.7", "5", "512", "0.0004", "0.001", "\u2717 fails"] in rows
    assert ["drafted-tp2", "drafted", "48.2 s", "12.5 s", "82.46 GB", "logs/tp2.log"] in rows
    for item in (result.checkpoint, result.target):
        assert item is not None
        assert all([path, digest] in rows for path, digest in item.files.items())
        assert item.digest in page.text
    for name, value in result.environment.items():
        assert f"{name} {value}" in joined
    assert "SGLANG_PLUGINS=speculators_dspark python -m sglang.launch_server --model-path 'a folder/target' --tp-size 2" in page.text


def test_what_was_not_timed_has_no_seconds() -> None:
    result = example()
    untimed = result.modes[0].model_copy(update={"seconds": 0})
    row = next(row for row in Page(smoke_html(result.model_copy(update={"modes": (untimed,)}))).rows if row[0] == untimed.name)
    assert row[-2:] == ["\u2013", "\u2013"]


def test_what_outputs_were_compared_with_is_explained_where_it_occurs() -> None:
    assert "Against null draft: plain greedy" in smoke_html(everything())
    assert "Against null draft" not in smoke_html(example())


def test_parameters_are_read_by_name() -> None:
    words = " ".join(Page(smoke_html(everything()).replace("<wbr>", "")).text.split())
    assert "Parameters expect \u2013 modes eager, ragged servers.concurrency 8 servers.control true servers.nodes.address host:1" in words
    assert "image" not in words


def test_each_prompt_of_each_mode_has_its_outcome() -> None:
    result = everything()
    page = Page(smoke_html(result))
    outcomes = [row[1] for row in page.rows if len(row) == 6 and row[0].isdigit()]
    count = result.modes[0].total
    assert outcomes == ["exact"] * count + ["tie at 17", "defect at 3"] + ["exact"] * (count - 2) + ["sampled"] * count
    first = result.modes[0].outcomes[0]
    row = ["0", "exact", *map(str, (first.output_tokens, first.verify_steps, first.accepted_tokens)), f"{first.accepted_tokens / first.verify_steps:.2f}"]
    assert row in page.rows


def test_modes_with_the_same_numbers_share_a_chart_and_say_so() -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", smoke_html(everything()))
    assert captions == ["eager tp 1; graph tp 1; eager tp 1, sampled", "ragged tp 2, 8 at once"]


def test_each_chart_is_an_image_with_a_name() -> None:
    page = smoke_html(everything())
    images = re.findall(r"<svg [^>]*>", page)
    assert len(images) == 3
    assert all('role="img"' in image and re.search(r'aria-label="[^"]{20,}"', image) for image in images)


def test_a_run_that_did_not_start() -> None:
    changes = {"verdict": "not-run", "reasons": ("the reference engine needs torch",), "modes": (), "comparisons": (), "equivalence": (), "target": None, "environment": {}}
    page = Page(smoke_html(example().model_copy(update=changes)))
    for words in (
        "Not run",
        "the reference engine needs torch",
        "Nothing was compared.",
        "No mode ran.",
        "No outputs were compared.",
        "No server was started.",
        "Target: none was read.",
    ):
        assert words in page.text
    assert [value for name, value in page.attributes if name == "id" and value in SECTIONS] == list(SECTIONS)


def test_a_result_of_an_earlier_version_has_no_drawing() -> None:
    page = smoke_html(example().model_copy(update={"geometry": None}))
    assert "an earlier version made it" in page
    assert len(re.findall("<svg", page)) == 1


@pytest.mark.parametrize("payload", HOSTILE)
def test_no_text_of_a_result_becomes_markup(payload: str) -> None:
    page = smoke_html(infected(payload))
    clean = Page(smoke_html(everything()))
    read = Page(page)
    assert read.tags == clean.tags
    assert {name for name, _ in read.attributes} == {name for name, _ in clean.attributes}
    assert [value for name, value in read.attributes if name == "href"] == [f"#{name}" for name in SECTIONS]
    assert len(read.rows) == len(clean.rows)
    assert printable(payload) in read.text
    assert printable(page, lines=True) == page
    page.encode()


def test_the_page_is_made_from_the_json_alone() -> None:
    result = everything()
    assert smoke_html(SmokeResult.model_validate_json(result.model_dump_json())) == smoke_html(result)


def test_the_page_of_the_docs_is_that_of_the_example() -> None:
    assert EXAMPLE.exists()
    assert (ROOT / "docs/smoke-report.html").read_text(encoding="utf-8") == smoke_html(example())


def test_the_lines_of_the_docs_make_the_page_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = re.findall(r"```python\n(.*?)```", (ROOT / "docs/equivalence.md").read_text(encoding="utf-8"), re.DOTALL)
    shutil.copy(EXAMPLE, tmp_path / "smoke.json")
    monkeypatch.chdir(tmp_path)
    exec(lines[0], {})  # noqa: S102
    assert (tmp_path / "smoke.html").read_text(encoding="utf-8") == smoke_html(example())


@pytest.mark.parametrize(
    ("anchor", "gamma", "slots", "words"),
    [
        (
            Anchor.SAMPLED,
            3,
            3,
            ["Draft forward, slots 0 to 2", "anchor", "mask", "mask", "predicts draft token", "1", "2", "3", "Target forward, checks 4 tokens", "anchor", "1", "2", "3"],
        ),
        (
            Anchor.BONUS,
            2,
            3,
            ["Draft forward, slots 0 to 2", "anchor", "mask", "mask", "predicts draft token", "none", "1", "2", "Target forward, checks 3 tokens", "anchor", "1", "2"],
        ),
        (Anchor.SAMPLED, 1, None, ["Draft forward, slots 0 to 0", "anchor", "predicts draft token", "1", "Target forward, checks 2 tokens", "anchor", "1"]),
    ],
)
def test_the_drawing_follows_the_anchor(anchor: Anchor, gamma: int, slots: int | None, words: list[str]) -> None:
    assert re.findall(r">([^<>]+)</text>", block_drawing(Block(anchor=anchor, gamma=gamma, query_slots=slots))) == words


def test_a_long_block_is_drawn_short() -> None:
    block = Block(anchor=Anchor.BONUS, gamma=1_000_000, query_slots=1_000_001)
    words = re.findall(r">([^<>]+)</text>", block_drawing(block))
    assert words.count("\u2026") == 3
    assert words.count("1000000") == 2
    assert "One draft forward of 1000001 slots" in block_sentence(block)


@pytest.mark.parametrize(
    "block", [Block(anchor=None, gamma=3, query_slots=None), Block(anchor=Anchor.BONUS, gamma=None, query_slots=None), Block(anchor=Anchor.BONUS, gamma=0, query_slots=1)]
)
def test_an_open_block_is_not_drawn(block: Block) -> None:
    assert block_drawing(block) == ""
    assert "leaves the anchor or the number of draft tokens open" in smoke_html(example().model_copy(update={"geometry": block}))
