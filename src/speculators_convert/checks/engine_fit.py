"""DSP8xx: whether an engine can serve the draft at all. What each engine does stands in the verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.container import UNREADABLE
from speculators_convert.checks.core import check
from speculators_convert.checks.places import listed
from speculators_convert.findings import EngineVerdict, Problem
from speculators_convert.model import Severity

_TRAINERS = {"speculators"}
"""Loads drafts and does not serve them."""


@check("DSP801", "A known engine can serve the draft", severity=Severity.WARNING, requires=(*UNREADABLE, "DSP101", "DSP301", "DSP304"))
def some_engine(checkpoint: Checkpoint, verdicts: tuple[EngineVerdict, ...]) -> Iterator[Problem]:
    """
    ## What it checks
    At least one of the known engine versions loads the draft, as it is or rewritten, or is not known to refuse it.

    ## Why it matters
    Otherwise the draft is of no use yet, however sound it is. The verdicts name the key or tensor that decides for each engine.

    ## How to fix
        Look at the reasons of the verdicts: most often a tapped layer out of reach, a missing tensor, or heads that do not divide over the requested
    ranks. Train the draft without it, or wait for an engine that has it.

    ## Reported in
    sglang#34734, NeMo AutoModel `serve_sglang` (warns on taps that no engine serves)
    """
    servers = [item for item in verdicts if item.engine not in _TRAINERS]
    if servers and all(item.refused for item in servers):
        reasons = [f"{item.engine} {item.version}: {item.reasons[0].partition(':')[0]}" for item in servers]
        severity = Severity.INFO if checkpoint.gguf else None
        yield Problem("no known engine serves this draft", subject="engines", measured=listed(reasons), expected="one verdict other than unsupported", severity=severity)
