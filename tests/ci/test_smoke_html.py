"""Report pages in a real Chromium: narrow, wide and printed, light and dark, with scripts and without. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bench.drawn import TIMES, check_page
from tests.bench.recorded_runs import summary
from tests.ci.browser import MISSING, Browser, Site, browsing, serving

from smoke_results import HOSTILE, everything, example, infected
from speculators_convert.report import svg
from speculators_convert.report.bench_html import render_bench
from speculators_convert.report.html import element, page, section
from speculators_convert.report.scale import PERCENT, axis, spread
from speculators_convert.report.smoke_html import smoke_html
from speculators_convert.results.bench import BenchReport

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
NARROW, WIDE = 390, 1200
BENCH, BENCH_SECTIONS = summary("trained"), ["c1", "c8", "order", "run"]
BAR = (0x1F / 255, 0x5F / 255, 0xA8 / 255)
SECTIONS = ["claims", "block", "acceptance", "equivalence", "prompts", "servers", "run", "checkpoints"]
EXECUTED = "return window.executed === undefined ? 'no' : 'yes'"
VISIBLE_SECTIONS = "return [...document.querySelectorAll('section')].filter(s => s.getBoundingClientRect().height > 40).map(s => s.id)"
HIDDEN_OUTSIDE = """
const outside = [];
for (const node of document.querySelectorAll('main *')) {
  const box = node.getBoundingClientRect();
  const inBox = node.closest('.scroll') && !node.classList.contains('scroll');
  if (box.width && !inBox && !node.closest('svg svg, svg *') && (box.right > innerWidth + 1 || box.left < -1)) outside.push(node.tagName + ' ' + box.left + ' ' + box.right);
}
return outside.slice(0, 5);
"""
LOW_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d');
function rgb(colour) { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; }
function light(colour) { return rgb(colour).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0); }
function ratio(a, b) { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); }
function behind(node) {
  if (node.ownerSVGElement) {
    const box = node.getBoundingClientRect();
    for (const under of document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2)) {
      if (under !== node && under.ownerSVGElement && under.tagName === 'rect' && getComputedStyle(under).fill !== 'none') return getComputedStyle(under).fill;
    }
    node = node.ownerSVGElement;
  }
  for (; node; node = node.parentElement) if (rgb(getComputedStyle(node).backgroundColor)[3]) return getComputedStyle(node).backgroundColor;
  return 'white';
}
const low = [];
let seen = 0;
for (const node of document.querySelectorAll('main *')) {
  const style = getComputedStyle(node);
  const said = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) && node.tagName !== 'title';
  const svg = !!node.ownerSVGElement;
  if (said) { seen += 1; const r = ratio(svg ? style.fill : style.color, behind(node)); if (r < 4.5) low.push([node.tagName, node.textContent.slice(0, 30), r]); }
  if (svg && node.tagName === 'rect' && ['one', 'box', 'drafted', 'anchor'].some(name => node.classList.contains(name))) {
    const edge = ['box', 'drafted'].some(name => node.classList.contains(name)) ? style.stroke : style.fill;
    const r = ratio(edge, behind(node.ownerSVGElement)); if (r < 3) low.push(['rect', node.className.baseVal, r]);
  }
}
return {seen, low};
"""
BROKEN_WORDS = """
const broken = [];
for (const cell of document.querySelectorAll('th, td')) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest('code')) continue;
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
    }
  }
}
return broken;
"""
BAD_CHART_TEXT = """
const bad = [];
for (const image of document.querySelectorAll('svg')) {
  const frame = image.getBoundingClientRect();
  const texts = [...image.querySelectorAll('text')].filter(text => text.textContent).map(text => [text.textContent, text.getBoundingClientRect()]);
  for (const [words, box] of texts)
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) bad.push('outside: ' + words);
  texts.forEach(([words, box], at) => texts.slice(at + 1).forEach(([others, other]) => {
    const across = Math.min(box.right, other.right) - Math.max(box.left, other.left), down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
    if (across > 1 && down > 4) bad.push('overlap: ' + words + ' | ' + others);
  }));
}
return bad;
"""


def many_repeats() -> BenchReport:
    """The recorded report as one of 21 repeats: tables that are wider than any page."""
    wide = [result.model_copy(update={"arms": tuple(arm.model_copy(update={"throughput": arm.throughput * 7}) for arm in result.arms)}) for result in BENCH.results]
    return BENCH.model_copy(update={"results": tuple(wide)})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browsing() as found:
        found.open("about:blank")
        found.requests()
        yield found


@pytest.fixture
def browser(window: Browser, site: Site) -> Browser:
    """The window as a user has it, and the site as nobody has asked yet."""
    window.scripts(run=True)
    window.scheme("light")
    window.resize(WIDE)
    window.open("about:blank")
    window.requests()
    site.asked.clear()
    return window


def show(browser: Browser, site: Site, markup: str) -> None:
    site.page = markup
    browser.open(site.url)


def charts() -> str:
    """A page with each kind of chart, as a report on throughput and latency has them."""
    runs = [svg.Bar("plain greedy", 1210.5, 1180.0, 1244.0), svg.Bar("drafted, TP 2, 16 at once, temperature 0.7, CUDA graphs", 3105.25, 2890.5, 3333.0), svg.Bar("x", 12.0)]
    samples = [[10.0 + (at * 37) % 101 / 7 * scale for at in range(200)] for scale in (1, 3)]
    spreads = [spread(name, values) for name, values in zip(("time per token, plain", "time per token, drafted"), samples, strict=True)]
    lines = [svg.Line(name, tuple(base * step for step in range(1, 7))) for name, base in (("plain", 100.0), ("drafted", 170.0), ("drafted, eager", 140.0), ("null draft", 60.0))]
    shown = (
        svg.bar_chart(runs, axis([3333.0], unit="tok/s"), title="Throughput"),
        svg.line_chart(lines, ("1", "2", "4", "8", "16", "32"), axis([1020.0]), title="Throughput by concurrency", below="requests at once"),
        svg.spread_chart(spreads, axis([item.high for item in spreads], unit="ms"), title="Latency"),
        svg.column_chart([svg.Bar(str(at), 1 / at) for at in range(1, 33)], PERCENT, title="Acceptance", below="draft position"),
        svg.column_chart([svg.Bar(str(at), 1.0) for at in range(1, 8)], PERCENT, title="All accepted", below="draft position"),
    )
    return page("Charts", [section("charts", "Charts", *(element("figure", chart) for chart in shown))], style=svg.STYLE)


@pytest.mark.parametrize("width", [320, NARROW, WIDE])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("result", [example(), everything()], ids=["example", "everything"])
def test_the_page_fits_and_asks_for_nothing(browser: Browser, site: Site, result: object, scripts: bool, width: int) -> None:
    browser.scripts(run=scripts)
    browser.resize(width)
    show(browser, site, smoke_html(result))  # type: ignore[arg-type]
    content, window = browser.widths()
    assert window == width
    assert content <= window
    document = browser.document()
    assert [name for name in SECTIONS if f'<section id="{name}"' in document] == SECTIONS
    assert site.asked == ["/page.html"]
    assert browser.requests() == [site.url]


def test_the_test_for_requests_would_see_one(browser: Browser, site: Site) -> None:
    show(browser, site, "<!doctype html><img src=other.png><link rel=stylesheet href=style.css>")
    assert {"/page.html", "/other.png", "/style.css"} <= set(site.asked)
    assert len(browser.requests()) >= 3


def boxes(browser: Browser, selector: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of all that the page draws for a selector; needs no script."""
    root = browser.devtools("DOM.getDocument", depth=0)["root"]["nodeId"]
    nodes = browser.devtools("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]
    quads = [browser.devtools("DOM.getContentQuads", nodeId=node)["quads"] for node in nodes]
    return [(min(quad[0::2]), min(quad[1::2]), max(quad[0::2]), max(quad[1::2])) for (quad,) in quads]


@pytest.mark.parametrize("width", [320, NARROW, WIDE])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("report", [BENCH, many_repeats()], ids=["recorded", "many-repeats"])
def test_the_bench_page_fits_and_asks_for_nothing(browser: Browser, site: Site, report: BenchReport, scripts: bool, width: int) -> None:
    browser.scripts(run=scripts)
    browser.resize(width)
    show(browser, site, render_bench(report))
    content, window = browser.widths()
    assert window == width
    assert content <= window
    document = browser.document()
    assert [name for name in BENCH_SECTIONS if f'<section id="{name}"' in document] == BENCH_SECTIONS
    check_page(document, report)
    assert site.asked == ["/page.html"]
    assert browser.requests() == [site.url]


@pytest.mark.parametrize("width", [320, NARROW, WIDE])
def test_the_charts_of_the_bench_page_are_seen_without_scripts(browser: Browser, site: Site, width: int) -> None:
    """Inside the window: a name for each arm in each chart, a bar as long as its throughput, a box for its times."""
    browser.scripts(run=False)
    browser.resize(width)
    show(browser, site, render_bench(BENCH))
    arms, kinds = len(BENCH.plan.arms), 1 + len(TIMES)
    for result in BENCH.results:
        inside = f"#c{result.concurrency} svg"
        charts, names, numbers = boxes(browser, inside), boxes(browser, f"{inside} text.over:not(.end)"), boxes(browser, f"{inside} text.over.end")
        assert [len(charts), len(names), len(numbers)] == [kinds, kinds * arms, kinds * arms]
        assert all(right - left > 280 and bottom - top > 30 * arms for left, top, right, bottom in charts)
        assert all(0 <= left < right <= width and bottom - top > 8 for left, top, right, bottom in (*charts, *names, *numbers))
        bars = [right - left for left, _, right, _ in boxes(browser, f"{inside} rect.one")]
        assert [bar / bars[0] for bar in bars] == pytest.approx([arm.throughput_median / result.arms[0].throughput_median for arm in result.arms], rel=0.02)
        seen = boxes(browser, f"{inside} rect.box")
        assert len(seen) == len(TIMES) * arms
        assert all(right - left > 0.8 and bottom - top > 8 for left, top, right, bottom in seen)


def test_a_screenshot_of_the_bench_page_has_its_bars_in_their_colour(browser: Browser, site: Site, tmp_path: Path) -> None:
    """Without scripts. Half of each bar's pixels: its whisker and edges are others."""
    imread = pytest.importorskip("matplotlib.image").imread
    browser.scripts(run=False)
    browser.resize(NARROW)
    show(browser, site, render_bench(BENCH))
    browser.screenshot(tmp_path / "page.png")
    picture = imread(tmp_path / "page.png")[:, :, :3]
    bars = [box for result in BENCH.results for box in boxes(browser, f"#c{result.concurrency} svg rect.one")]
    assert len(bars) == len(BENCH.results) * len(BENCH.plan.arms)
    for left, top, right, bottom in bars:
        area = picture[round(top) : round(bottom), round(left) : round(right)]
        assert (abs(area - BAR).max(axis=2) < 0.02).mean() > 0.5


@pytest.mark.parametrize("width", [320, NARROW, WIDE])
@pytest.mark.parametrize(("markup", "sections"), [(smoke_html(everything()), SECTIONS), (render_bench(BENCH), BENCH_SECTIONS)], ids=["smoke", "bench"])
def test_nothing_leaves_the_window_and_all_sections_are_seen(browser: Browser, site: Site, markup: str, sections: list[str], width: int) -> None:
    browser.resize(width)
    show(browser, site, markup)
    assert browser.run(VISIBLE_SECTIONS) == sections
    assert browser.run(HIDDEN_OUTSIDE) == []


@pytest.mark.parametrize(("width", "media"), [(NARROW, "screen"), (760, "screen"), (900, "screen"), (WIDE, "screen"), (718, "print")])
@pytest.mark.parametrize("markup", [smoke_html(everything()), render_bench(BENCH)], ids=["smoke", "bench"])
def test_no_word_of_a_table_is_broken(browser: Browser, site: Site, markup: str, width: int, media: str) -> None:
    """718 pixels: A4 less its margins."""
    browser.scheme("light", media=media)
    browser.resize(width)
    show(browser, site, markup)
    assert browser.becomes(BROKEN_WORDS, []) == []
    assert browser.run(HIDDEN_OUTSIDE) == []


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(browser: Browser, site: Site, payload: str) -> None:
    """Without the page's own policy too: escaping alone must do."""
    guarded = smoke_html(infected(payload))
    for markup, asked in ((guarded, {"/page.html"}), (guarded.replace("Content-Security-Policy", "x-nothing"), {"/page.html", "/favicon.ico"})):
        browser.resize(NARROW)
        show(browser, site, markup)
        content, window = browser.widths()
        assert content <= window
        assert browser.run(EXECUTED) == "no"
        assert browser.run("return document.querySelectorAll('script, img, iframe, [onerror], [onload], [onfocus]').length") == 0
        assert set(site.asked) <= asked


def test_the_test_for_hostile_text_would_see_it_run(browser: Browser, site: Site) -> None:
    for payload in HOSTILE[:2]:
        show(browser, site, f'<!doctype html><title>x</title><p title="{payload}">{payload}</p>')
        assert browser.run("return new Promise(done => setTimeout(() => done(window.executed === undefined ? 'no' : 'yes'), 200))") == "yes"


def test_the_policy_of_the_page_stops_scripts_and_requests(browser: Browser, site: Site) -> None:
    show(browser, site, smoke_html(example()).replace("</main>", f"{HOSTILE[0]}<img src=other.png></main>"))
    assert browser.run(EXECUTED) == "no"
    assert site.asked == ["/page.html"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("markup", [smoke_html(everything()), render_bench(BENCH), charts()], ids=["smoke", "bench", "charts"])
def test_text_and_bars_stand_out_from_what_is_behind_them(browser: Browser, site: Site, markup: str, scheme: str) -> None:
    browser.scheme(scheme)
    browser.resize(WIDE, height=9000)
    show(browser, site, markup)
    found = browser.run(LOW_CONTRAST)
    assert found["low"] == []
    assert found["seen"] > 30
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("markup", [smoke_html(example()), smoke_html(everything()), render_bench(BENCH), charts()], ids=["example", "everything", "bench", "charts"])
def test_the_words_of_a_chart_neither_overlap_nor_leave_it(browser: Browser, site: Site, markup: str, width: int) -> None:
    browser.resize(width)
    show(browser, site, markup)
    assert browser.run("return document.querySelectorAll('svg text').length") > 10
    assert browser.run(BAD_CHART_TEXT) == []
    assert browser.widths()[0] <= width


def test_a_printed_page_is_light_and_shows_what_was_folded(browser: Browser, site: Site) -> None:
    folded = "return [...document.querySelectorAll('details:not([open]) > pre')].map(pre => pre.checkVisibility({contentVisibilityAuto: true}))"
    browser.scheme("dark")
    show(browser, site, smoke_html(everything()))
    assert browser.run(folded) == [False, False]
    browser.scheme("dark", media="print")
    assert browser.becomes(folded, [True, True]) == [True, True]
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.pdf().startswith(b"%PDF-")


def test_a_screenshot_is_not_blank(browser: Browser, site: Site, tmp_path: Path) -> None:
    show(browser, site, smoke_html(example()))
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000
