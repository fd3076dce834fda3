"""Self-contained HTML pages: elements that escape what they are given, tables, and one style for light, dark and print.

A page needs no script and no other file, and its own policy (CSP) forbids both.
"""

from __future__ import annotations

import html
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from speculators_convert.model import printable

Attribute = str | float | bool | None
NOTHING = "\N{EN DASH}"
"""Stands in a cell that has no value."""
_VOID = {"br", "meta", "wbr"}


class Markup(str):
    """HTML that is already safe; any other text is escaped before it becomes a part of a page."""

    __slots__ = ()


def text(value: object, *, lines: bool = False) -> Markup:
    """`value` as escaped text; control characters, direction marks and invisible ones are shown as \\uXXXX. `lines` keeps line ends."""
    return value if isinstance(value, Markup) else Markup(html.escape(printable(str(value), lines=lines)))


def join(parts: Iterable[object]) -> Markup:
    """The parts one after the other."""
    return Markup("".join(text(part) for part in parts))


def element(name: str, /, *children: object, **attributes: Attribute) -> Markup:
    """One element. `class_` is written class and `aria_label` aria-label; None and False leave an attribute out."""
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening if name in _VOID else f"{opening}{join(children)}</{name}>")


def number(value: float) -> str:
    """A number with at most two decimals; 0 for what is not finite."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{text(value if isinstance(value, str) else number(value))}"'


@dataclass(frozen=True, slots=True)
class Column:
    """A table column: its head, and whether it holds numbers."""

    head: str
    numeric: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, label: str, stacked: bool = False) -> Markup:
    """A table that scrolls inside its own box when it is too wide; with `stacked`, each row becomes a block on a narrow screen. The first cell heads its row."""
    head = element("tr", *(element("th", column.head, scope="col", role="columnheader", class_=_numeric(column)) for column in columns), role="row")
    body = (element("tr", *(_cell(column, cell, first=at == 0) for at, (column, cell) in enumerate(zip(columns, row, strict=True))), role="row") for row in rows)
    inside = element(
        "table", element("thead", head, role="rowgroup"), element("tbody", *body, role="rowgroup"), role="table", aria_label=label, class_="stacked" if stacked else None
    )
    return element("div", inside, class_="scroll", role="region", aria_label=label, tabindex="0")


def _numeric(column: Column) -> str | None:
    return "number" if column.numeric else None


def _cell(column: Column, cell: object, *, first: bool) -> Markup:
    if first:
        return element("th", cell, scope="row", role="rowheader", class_=_numeric(column), data_label=column.head)
    return element("td", cell, role="cell", class_=_numeric(column), data_label=column.head)


def facts(rows: Iterable[tuple[object, object]]) -> Markup:
    """Names and values as a definition list."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in rows))


def code(value: object) -> Markup:
    """A name, path, digest or command."""
    return element("code", value)


def section(anchor: str, title: str, *children: object) -> Markup:
    """A part of the page with its heading."""
    return element("section", element("h2", title, id=f"{anchor}-title"), *children, id=anchor, aria_labelledby=f"{anchor}-title")


def page(title: str, body: Iterable[Markup], *, style: str = "") -> str:
    """The whole document; `style` is added to the common one."""
    sheet = STYLE + style
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(sheet)),
    )
    return "<!doctype html>\n" + element("html", element("head", *head), element("body", element("main", *body)), lang="en") + "\n"


STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#565e68;--rule:#d4d9df;--fill:#f3f5f7;
--good:#17693a;--bad:#b3261e;--open:#7a5200;--one:#1f5fa8;--two:#a8500f;--three:#17693a;--four:#7b3fa0}
@media screen and (prefers-color-scheme:dark){:root{--page:#14171a;--ink:#e7e9ec;--soft:#a8b0ba;--rule:#3b424a;--fill:#1e2328;
--good:#6fcf97;--bad:#ff9389;--open:#e8b95a;--one:#7fb2ee;--two:#f0a868;--three:#6fcf97;--four:#c9a0e6}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
main{max-width:62rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:.25rem 0 .5rem;text-wrap:balance}
h2{font-size:1.2rem;margin:2.75rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
p,ul{margin:.5rem 0;max-width:46rem}
ul{padding-left:1.25rem}
a{color:var(--one)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:1.25rem 0 0;max-width:none}
.note{color:var(--soft);font-size:.9rem}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}
.good,.bad,.open{font-weight:600}
.stacked td>.good,.stacked td>.bad{white-space:nowrap}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:0 2.5rem}
.verdict{border-left:.4rem solid currentColor;padding:.1rem 0 .1rem 1rem}
.verdict h1{color:inherit}
.verdict>:not(h1){color:var(--ink);font-weight:400}
.verdict p,.verdict li{white-space:pre-wrap}
code,pre{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;unicode-bidi:isolate}
pre{white-space:pre-wrap;background:var(--fill);padding:.6rem .75rem;margin:.5rem 0}
dl{margin:.75rem 0}
dl>div{display:grid;grid-template-columns:minmax(7rem,13rem) minmax(0,1fr);gap:0 1rem;padding:.25rem 0}
dt{color:var(--soft)}dd{margin:0}
.scroll{overflow-x:auto;margin:.75rem 0}
:focus-visible{outline:2px solid var(--one);outline-offset:2px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:baseline;padding:.3rem 1.25rem .3rem 0;border-bottom:1px solid var(--rule);font-weight:400;overflow-wrap:break-word}
th:last-child,td:last-child{padding-right:0}
tbody th{min-width:6.5rem}
tbody th.number{min-width:0}
thead th{color:var(--soft);font-size:.82rem;vertical-align:bottom;overflow-wrap:normal}
.number{text-align:right}
td.number{white-space:nowrap}
.stacked tbody th,.stacked td{overflow-wrap:anywhere}
.stacked td{min-width:4.5rem}
.stacked td.number{min-width:0}
details{margin:.75rem 0}
summary{cursor:pointer}
figure{margin:1.25rem 0;display:flex;flex-wrap:wrap;gap:.5rem 2.5rem;align-items:flex-start}
figcaption{flex:0 0 100%;font-weight:600}
figure svg{flex:0 1 auto}
.beside{flex:1 1 18rem;margin:0}
svg{display:block;max-width:100%;height:auto}
@media screen and (max-width:46rem){
th,td{padding-right:.7rem}
dl{font-size:.9rem}
dl>div{grid-template-columns:8.5rem minmax(0,1fr);gap:0 .75rem}
header dl>div{grid-template-columns:4rem minmax(0,1fr)}
.stacked,.stacked tbody,.stacked tr,.stacked th,.stacked td{display:block}
.stacked thead{display:none}
.stacked tr{padding:.6rem 0;border-bottom:1px solid var(--rule)}
.stacked th,.stacked td{border:0;padding:.05rem 0;text-align:left;white-space:normal}
.stacked th{font-weight:600}
.stacked td.number{display:inline-block;padding-right:1rem}
.stacked td::before{content:attr(data-label) " ";color:var(--soft);font-weight:400}
}
@media print{
html{font-size:11px}main{max-width:none;padding:0}nav{display:none}
.scroll{overflow:visible}tr,figure{break-inside:avoid}h2,h3,summary{break-after:avoid}
details::details-content{content-visibility:visible;display:block;block-size:auto}
svg{width:24rem}
*{print-color-adjust:exact}
}
"""
