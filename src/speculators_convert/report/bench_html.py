"""A performance run as one HTML page: what got better and worse first, then throughput and latencies drawn, then how it was run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from speculators_convert.report import svg
from speculators_convert.report.bench_text import nothing_worse
from speculators_convert.report.html import NOTHING, Column, Markup, code, element, facts, join, page, section, table
from speculators_convert.results.bench import ArmResult, BenchPlan, BenchReport, Change, ConcurrencyResult, Distribution

TIMES: tuple[tuple[str, Callable[[ArmResult], Distribution]], ...] = (
    ("End to end", lambda arm: arm.end_to_end),
    ("Time to first token", lambda arm: arm.time_to_first_token),
    ("Time per output token", lambda arm: arm.time_per_output_token),
)
_SIGNS = {"better": ("\N{CHECK MARK} better ", "good"), "worse": ("\N{BALLOT X} worse ", "bad"), "unclear": ("", None)}
"""Words and colour of a verdict."""
STYLE = ".beside{min-width:0}\n"
"""A table beside a chart scrolls in its own box when it is wider than the page."""
QUARTER, THREE_QUARTERS = 5, 15
"""Places of the quartiles in a distribution's curve."""


def render_bench(report: BenchReport) -> str:
    """The page, from the report alone."""
    parts = [(f"c{item.concurrency}", f"Concurrency {item.concurrency}", join(_concurrency(item))) for item in report.results]
    parts += [("order", "Order of the servers", _order(report)), ("run", "How it was run", _run(report.plan))]
    links = element("nav", element("ul", *(element("li", element("a", title, href=f"#{anchor}")) for anchor, title, _ in parts)), aria_label="Sections")
    body = (_header(report), links, *(section(anchor, title, content) for anchor, title, content in parts))
    return page(f"Bench of {report.plan.arms[1].name} against the target alone", body, style=svg.STYLE + STYLE)


def _header(report: BenchReport) -> Markup:
    plan, worse = report.plan, report.regressions
    text = f"{len(worse)} measures are worse than the target alone" if worse else nothing_worse(report)
    lines = element("ul", *(element("li", line) for line in worse)) if worse else ""
    verdict = element("div", element("h1", text), lines, class_=f"verdict {'bad' if worse else 'open' if plan.repeats < 2 else 'good'}")
    rows: list[tuple[object, object]] = [("Target", join((code(plan.target.reference), f" sha256:{plan.target.digest[:16]}")))]
    rows += [(arm.name, join((code(arm.draft.reference), f" sha256:{arm.draft.digest[:16]}", "" if arm.plugin else ", without the plugin"))) for arm in plan.arms if arm.draft]
    rows.append(
        ("Requests", f"{plan.workload.requests} of {plan.workload.name}, exactly {plan.output_tokens} output tokens each; {len(plan.workload.skipped)} skipped for want of room")
    )
    rows.append(("Engine", f"{plan.engine}; {_device(plan)}"))
    return element("header", element("p", "Performance report", class_="note"), verdict, facts(rows))


def _device(plan: BenchPlan) -> str:
    return "; ".join(value for name, value in plan.environment.items() if name.startswith("gpu ")) or plan.environment["machine"]


def _concurrency(result: ConcurrencyResult) -> Iterator[Markup]:
    yield element("h3", "One against the other")
    yield _changes(result)
    yield element("h3", "Throughput")
    yield element("figure", throughput_chart(result), element("div", _throughput_table(result), class_="beside"))
    for name, times in TIMES:
        yield element("h3", name)
        yield element("figure", times_chart(name, times, result), element("div", _times_table(name, times, result), class_="beside"))
    yield element("h3", "Acceptance")
    yield _acceptance(result.arms)


def throughput_chart(result: ConcurrencyResult) -> Markup:
    """Median over repeats, with the range as a whisker."""
    bars = [svg.Bar(arm.arm, arm.throughput_median, min(arm.throughput), max(arm.throughput)) for arm in result.arms]
    return svg.bar_chart(bars, svg.axis((bar.high or 0 for bar in bars), unit="tok/s"), title=f"Output tokens per second at concurrency {result.concurrency}")


def times_chart(name: str, times: Callable[[ArmResult], Distribution], result: ConcurrencyResult) -> Markup:
    """Range, quartiles, median and 99th percentile of each arm."""
    found = [(arm.arm, times(arm)) for arm in result.arms]
    spreads = [svg.Spread(label, item.curve[0], item.curve[QUARTER], item.p50, item.curve[THREE_QUARTERS], item.p99, item.curve[-1]) for label, item in found]
    return svg.spread_chart(spreads, svg.axis((item.high for item in spreads), unit="ms"), title=f"{name} at concurrency {result.concurrency}")


def _changes(result: ConcurrencyResult) -> Markup:
    """One row for each measure, one column for each pair of arms."""
    pairs = list(dict.fromkeys((change.arm, change.against) for change in result.changes))
    found = {(change.metric, change.arm, change.against): change for change in result.changes}
    metrics = dict.fromkeys(change.metric for change in result.changes)
    columns = (Column("Measure"), *(Column(f"{arm} / {against}", numeric=True) for arm, against in pairs))
    rows = ([metric, *(_change(found[metric, *pair]) for pair in pairs)] for metric in metrics)
    note = "Median of the ratios within each repeat, and their range. Better or worse: all of two repeats or more agree."
    return join((table(columns, rows, label=f"Ratios at concurrency {result.concurrency}", stacked=True), element("p", note, class_="note")))


def _change(change: Change) -> Markup:
    sign, kind = _SIGNS[change.verdict]
    return join((element("span", f"{sign}{change.median:.3f}", class_=kind), element("br"), element("span", f"{change.low:.3f} to {change.high:.3f}", class_="note")))


def _throughput_table(result: ConcurrencyResult) -> Markup:
    repeats = max(len(arm.throughput) for arm in result.arms)
    columns = (
        Column("Arm"),
        *(Column(f"Repeat {number + 1}", numeric=True) for number in range(repeats)),
        Column("Same outputs", numeric=True),
        Column("The target's", numeric=True),
        Column("Events", numeric=True),
    )
    rows = ([arm.arm, *(f"{value:.1f}" for value in arm.throughput), arm.outputs_equal, arm.outputs_plain, f"{arm.events / arm.steps:.1%}"] for arm in result.arms)
    note = (
        "Same outputs: requests with the same tokens in each repeat; the target's: with the tokens of the target alone. "
        "Events: share of steps whose tokens reached the client by themselves; when it is low, processors were short and times per token are coarse."
    )
    return join((table(columns, rows, label="Output tokens per second"), element("p", note, class_="note")))


def _times_table(name: str, times: Callable[[ArmResult], Distribution], result: ConcurrencyResult) -> Markup:
    columns = (Column("Arm"), Column("p50, ms", numeric=True), Column("p99, ms", numeric=True), Column("Largest, ms", numeric=True), Column("Requests", numeric=True))
    rows = ((arm.arm, f"{item.p50:.3f}", f"{item.p99:.3f}", f"{item.curve[-1]:.3f}", item.count) for arm in result.arms for item in (times(arm),))
    return table(columns, rows, label=name)


def _acceptance(arms: Sequence[ArmResult]) -> Markup:
    columns = (Column("Draft"), *(Column(name, numeric=True) for name in ("Acceptance length", "Rate", "Time per step", "Verify steps", "Accepted", "Drafted")))
    rows = [
        (arm.arm, f"{found.length:.3f}", f"{found.rate:.1%}", f"{arm.step_ms:.3f} ms", f"{found.verify_steps:,}", f"{found.accepted:,}", f"{found.drafted:,}")
        for arm in arms
        if (found := arm.acceptance) is not None
    ]
    note = "From the server's own counters: accepted plus bonus tokens over verification steps, and accepted over proposed tokens."
    return join((table(columns, rows, label="Acceptance", stacked=True), element("p", note, class_="note"))) if rows else element("p", NOTHING)


def _order(report: BenchReport) -> Markup:
    columns = (Column("Server", numeric=True), Column("Repeat", numeric=True), Column("Arm"), Column("SHA-256 of its rows"))
    rows = ((step.index, step.repeat + 1, step.arm, code(digest)) for step, digest in zip(report.plan.steps, report.rows_sha256, strict=True))
    return table(columns, rows, label="Order of the servers", stacked=True)


def _run(plan: BenchPlan) -> Markup:
    asked = {"concurrency": ", ".join(map(str, plan.concurrency)), "repeats": plan.repeats, "warm-up requests for each in flight": plan.warm_up}
    asked |= {"servers started together": plan.side_by_side, "workload digest": plan.workload.digest, "package digest": plan.package_digest}
    halves = (("Run", {**asked, **plan.settings}), ("Environment", plan.environment))
    return element("div", *(element("div", element("h3", title), facts(values.items())) for title, values in halves), class_="pair")
