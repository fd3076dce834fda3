"""DSpark drafts in the Speculators layout on a stock SGLang, through its plugin entry point `sglang.srt.plugins`.

SGLang logs and forgets every error of a plugin. So nothing here relies on having been run: `register` keeps what went
wrong, and the config parser and the model, whose errors SGLang does not catch, refuse to serve because of it.
"""

from __future__ import annotations

import logging

ENTRY_POINT_GROUP = "sglang.srt.plugins"
ENTRY_POINT_NAME = "speculators_dspark"
ARCHITECTURE = "SpeculatorsDSparkModel"
"""Architecture name under which a Speculators draft is loaded; also the mark that a config came through the plugin."""


def register() -> None:
    """Install the config parser and the hooks in this process. Called by SGLang in each of its processes."""
    from speculators_convert.sglang_plugin import hooks, parser, release, state  # noqa: PLC0415

    parser.install()
    state.problem = release.problem(release.installed(), allowed=release.untested_allowed()) or hooks.install()
    if state.problem:
        logging.getLogger(__name__).error("Speculators drafts will be refused: %s", state.problem)
