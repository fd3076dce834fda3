"""Text form of a smoke result."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.report.values_text import value_lines
from speculators_convert.results.smoke import ModeResult, SmokeResult

_BAR = 24


def smoke_lines(result: SmokeResult) -> Iterator[str]:
    """Engine, each mode with its acceptance by position, comparisons, verdict."""
    yield f"draft   {result.checkpoint.reference}  sha256:{result.checkpoint.digest[:16]}"
    if result.target:
        yield f"target  {result.target.reference}  sha256:{result.target.digest[:16]}"
    yield f"engine  {result.engine}" + ("" if result.engine_reason == "stated" else f" ({result.engine_reason})")
    yield from (f"        {line}" for line in value_lines(result.environment))
    for mode in result.modes:
        yield ""
        yield from _mode(mode)
    if result.servers:
        yield ""
    for server in result.servers:
        memory = f", {server.memory_bytes / 1e9:.1f} GB" if server.memory_bytes else ""
        yield f"server {server.name}: up after {server.start_seconds:.1f} s, asked for {server.asked_seconds:.1f} s{memory}, {server.log}"
    if result.comparisons:
        yield ""
    for item in result.comparisons:
        yield f"{'ok  ' if item.holds else 'FAIL'} {item.name}: {item.measured}" + ("" if item.holds else f", expected {item.expected}")
    yield ""
    yield f"verdict {result.verdict}" + (f": {'; '.join(result.reasons)}" if result.verdict != "pass" else "")


def _mode(mode: ModeResult) -> Iterator[str]:
    tokens = sum(outcome.output_tokens for outcome in mode.outcomes)
    yield f"{mode.name}: acceptance length {mode.acceptance_length:.3f} ({mode.accepted_tokens} accepted + {mode.verify_steps} bonus, {mode.verify_steps} steps)"
    exact = "" if mode.temperature else f"exact {mode.exact} of {mode.total} prompts, "
    yield f"  {exact}{tokens} tokens" + (f", {mode.seconds:.1f} s drafted, {mode.target_only_seconds:.1f} s target only" if mode.seconds else "")
    for position, share in enumerate(mode.acceptance_by_position, 1):
        yield f"  position {position}  {share:6.1%}  {'#' * round(share * _BAR)}"
