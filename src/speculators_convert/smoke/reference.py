"""The embedded engine as a back end: in this process for one rank, over torch's elastic launcher for more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speculators_convert.errors import UsageError
from speculators_convert.results.smoke import EngineRun, Prompt, SmokeConfig
from speculators_convert.smoke.compare import Progress
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec

MODES = ("eager", "graph")


class ReferenceBackend:
    """`--engine reference`."""

    name = "reference"

    def run(self, config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress) -> EngineRun:
        """Each mode of `config` over `prompts`, and target-only decoding once."""
        return run(config, spec, source, target, prompts, progress)


BACKEND = ReferenceBackend()


def run(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress) -> EngineRun:
    """Each mode of `config` over `prompts`, and target-only decoding once."""
    for mode in config.modes:
        if mode not in MODES:
            raise UsageError("the engine has no such mode", where="--modes", measured=mode, expected=", ".join(MODES))
    if config.tp > 1:
        from speculators_convert.smoke import launch  # noqa: PLC0415

        return launch.run(config, spec, source, target, prompts, progress)
    from speculators_convert.smoke.engine import session  # noqa: PLC0415

    return session.run(config, spec, source, target, prompts, progress)
