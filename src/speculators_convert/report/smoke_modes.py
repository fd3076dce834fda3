"""The modes of a smoke run on its HTML page: the numbers of each, and acceptance by draft position."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from speculators_convert.report.html import NOTHING, Column, Markup, element, join, table
from speculators_convert.report.scale import PERCENT
from speculators_convert.report.svg import Bar, column_chart
from speculators_convert.results.smoke import ModeResult

_K = TypeVar("_K", bound=Hashable)


def alike(items: Iterable[tuple[_K, ModeResult]]) -> Iterator[tuple[str, ModeResult]]:
    """One mode for each key with the names of all modes that share it, in the order of the run: equal results are shown once."""
    groups: dict[_K, list[ModeResult]] = {}
    for key, mode in items:
        groups.setdefault(key, []).append(mode)
    yield from (("; ".join(mode.name for mode in modes), modes[0]) for modes in groups.values())


def acceptance(modes: Sequence[ModeResult]) -> Markup:
    """A table of the modes, then a chart and a table of acceptance by draft position; modes with the same shares have one chart."""
    if not modes:
        return element("p", "No mode ran.")
    return join((_table(modes), *(_by_position(names, mode) for names, mode in alike((mode.acceptance_by_position, mode) for mode in modes))))


def _table(modes: Sequence[ModeResult]) -> Markup:
    heads = ("Acceptance length", "Exact", "Steps", "Drafted", "Accepted", "Drafted run", "Target only")
    served = any(mode.server for mode in modes)
    columns = [Column("Mode"), *(Column(head, numeric=True) for head in heads), *([Column("Server")] if served else [])]
    note = (
        "Acceptance length: accepted plus bonus tokens over verification steps; 1 means that no draft token was ever accepted. Exact: prompts equal to target-only greedy decoding."
    )
    return join((table(columns, (_row(mode, served=served) for mode in modes), label="Modes", stacked=True), element("p", note, class_="note")))


def _row(mode: ModeResult, *, served: bool) -> list[object]:
    exact = f"sampled at {mode.temperature:g}" if mode.temperature else f"{mode.exact} of {mode.total}"
    counts = (f"{count:,}" for count in (mode.verify_steps, mode.drafted_tokens, mode.accepted_tokens))
    length = element("strong", f"{mode.acceptance_length:.3f}")
    seconds = (f"{mode.seconds:.1f} s", f"{mode.target_only_seconds:.1f} s") if mode.seconds else (NOTHING, NOTHING)
    return [mode.name, length, exact, *counts, *seconds, *([mode.server or NOTHING] if served else [])]


def _by_position(names: str, mode: ModeResult) -> Markup:
    shares = mode.acceptance_by_position
    if not shares:
        return element("p", names, ": no acceptance by position was recorded.")
    bars = [Bar(str(position), share) for position, share in enumerate(shares, 1)]
    chart = column_chart(bars, PERCENT, title=f"Share of verification steps in which each draft position was accepted, {names}", below="draft position")
    before = (1.0, *shares)
    rows = [(position, f"{share:.1%}", f"{share / before[position - 1]:.1%}" if before[position - 1] else NOTHING) for position, share in enumerate(shares, 1)]
    columns = (Column("Position", numeric=True), Column("Accepted", numeric=True), Column("Given the one before", numeric=True))
    return element("figure", element("figcaption", names), chart, table(columns, rows, label=f"Acceptance by draft position, {names}"))
