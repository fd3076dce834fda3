"""Elements escape what they are given, and a page names its one style."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from speculators_convert.report.html import Column, Markup, code, element, facts, join, number, page, section, table, text


def test_text_is_escaped_and_what_cannot_be_seen_is_shown() -> None:
    assert text("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert text("a\u202eb\x00c\nd") == "a\\u202eb\\u0000c\\u000ad"
    assert text("a\nb", lines=True) == "a\nb"


def test_markup_is_not_escaped_twice() -> None:
    assert element("p", element("b", "<"), " & ", 3) == "<p><b>&lt;</b> &amp; 3</p>"
    assert join([Markup("<br>"), "<br>"]) == "<br>&lt;br&gt;"


def test_attributes() -> None:
    assert element("a", "x", class_="n", aria_label='say "hi"', href=None, hidden=False, open=True, x1=0.125, y=3) == (
        '<a class="n" aria-label="say &quot;hi&quot;" open x1="0.12" y="3">x</a>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_numbers_are_short_and_always_finite() -> None:
    assert [number(value) for value in (1, 1.5, 1.126, 100, float("nan"), float("inf"))] == ["1", "1.5", "1.13", "100", "0", "0"]


def test_a_table_heads_columns_and_rows() -> None:
    shown = table((Column("Name"), Column("Size", numeric=True)), [("a<", 1)], label="Files", stacked=True)
    assert '<th scope="col" role="columnheader">Name</th><th scope="col" role="columnheader" class="number">Size</th>' in shown
    assert '<th scope="row" role="rowheader" data-label="Name">a&lt;</th><td role="cell" class="number" data-label="Size">1</td>' in shown
    assert shown.startswith('<div class="scroll" role="region" aria-label="Files" tabindex="0"><table role="table" aria-label="Files" class="stacked">')


def test_the_policy_of_a_page_allows_its_own_style_and_nothing_else() -> None:
    shown = page("t", [section("a", "A", code("x"), facts([("n", 1)]))], style=".x{color:red}")
    sheet = re.findall(r"<style>(.*?)</style>", shown, re.DOTALL)
    digest = b64encode(hashlib.sha256(sheet[0].encode()).digest()).decode()
    assert len(sheet) == 1
    assert sheet[0].endswith(".x{color:red}")
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;; base-uri &#x27;none&#x27;; form-action &#x27;none&#x27;" in shown
    assert not re.search(r"<script|url\(|@import|https?:", shown)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.text(), st.text())
def test_whatever_the_text_an_element_stays_one_element(words: str, attribute: str) -> None:
    reader = _Reader()
    reader.feed(element("p", words, title=attribute))
    reader.close()
    assert (reader.tags, set(reader.attributes)) == (["p"], {"title"})
    assert reader.words.isprintable() or " " in reader.words or any(not character.isprintable() for character in words)
    assert len(reader.words) >= len(words)
