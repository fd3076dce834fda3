"""Text form of a probe result."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.results.probe import HypothesisResult, ProbeResult


def probe_lines(result: ProbeResult) -> Iterator[str]:
    """Each reading with its numbers, the best first; then the answer."""
    yield f"draft   {result.checkpoint.reference}  sha256:{result.checkpoint.digest[:16]}"
    yield f"target  {result.target.reference}  sha256:{result.target.digest[:16]}"
    yield f"tokens  {result.texts} texts and {result.continuations} continuations, {result.target_passes} target passes for {len(result.hypotheses)} readings"
    yield ""
    width = max(len(item.name) for item in result.hypotheses)
    yield f"{'reading':{width}}  verdict     tokens/step  difference             KL     difference"
    for item in sorted(result.hypotheses, key=_order):
        yield f"{item.name:{width}}  {item.verdict:10}  {_row(item)}".rstrip()
    yield ""
    for item in result.hypotheses:
        if item.name == result.best:
            yield f"best    {item.name}: {item.reading}"
    for reason in result.reasons:
        yield f"{'CONTRADICTS' if result.contradicts else 'holds'}  {reason}"


def _order(item: HypothesisResult) -> tuple[int, float]:
    return ("best", "better", "tie", "worse", "impossible").index(item.verdict), -(item.accepted or 0.0)


def _row(item: HypothesisResult) -> str:
    if item.accepted is None or item.kl is None or item.difference is None or item.kl_difference is None:
        return item.reason
    return f"{item.accepted:11.3f}  {item.difference:+.3f} {_interval(item.interval):17} {item.kl:5.2f}  {item.kl_difference:+.3f} {_interval(item.kl_interval)}"


def _interval(interval: tuple[float, float] | None) -> str:
    return "[one text only]" if interval is None else f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"
