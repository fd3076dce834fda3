"""What every fixture builder shares: where things live and which variants exist.

Standard library only, so that the tool itself runs anywhere.  The builders that
need the speculators package run in that package's own environment (one for each
release, built by ``tools/fixtures_env.sh``) as separate processes.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "fixtures"
LIBRARY = FIXTURES / "library"
TRAINED = FIXTURES / "trained"
ORACLE = FIXTURES / "oracle"
ENVS = Path(os.environ.get("SPEC_CONVERT_ENVS", "~/.cache/spec-convert/envs")).expanduser()

VERSIONS = ("0.7.0.2-tf4", "0.7.0.2", "0.8.1", "0.9.0")
SLIDING, FULL = "sliding_attention", "full_attention"
VOCAB, REDUCED_VOCAB = 96, 48


@dataclass(frozen=True)
class Variant:
    """One random-weight draft: everything that its config says differently."""

    name: str
    head: str = "vanilla"
    anchor: bool = True
    reduced: bool = False
    layer_types: tuple[str, ...] = (FULL, FULL)
    window: int | None = None
    non_causal: bool = False
    markov_rank: int = 8
    confidence: bool = True
    confidence_with_markov: bool = True
    taps: tuple[int, ...] = (1, 3)
    block: int = 4
    max_shard_size: str | None = None

    @property
    def seed(self) -> int:
        """A seed that depends on the name alone."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "big")


def base_variants() -> list[Variant]:
    """Head x layout x vocabulary, the twelve that every release gets."""
    return [
        Variant(
            f"{head}-{'anchor' if anchor else 'bonus'}-{'reduced' if reduced else 'full'}",
            head=head,
            anchor=anchor,
            reduced=reduced,
        )
        for head in ("vanilla", "gated", "rnn")
        for anchor in (True, False)
        for reduced in (False, True)
    ]


def extra_variants() -> list[Variant]:
    """What only the newest release gets: attention kinds, optional heads, shards."""
    both = (SLIDING, SLIDING)
    mixed = (SLIDING, FULL)
    return [
        Variant("sliding-causal", layer_types=both, window=6),
        Variant("sliding-noncausal", layer_types=both, window=6, non_causal=True, reduced=True),
        Variant("mixed-causal", layer_types=mixed, window=5, reduced=True),
        Variant(
            "mixed-noncausal-bonus",
            layer_types=mixed,
            window=5,
            non_causal=True,
            anchor=False,
            head="rnn",
        ),
        Variant("no-confidence", confidence=False),
        Variant("confidence-without-markov", confidence_with_markov=False, reduced=True),
        Variant("no-markov", markov_rank=0, confidence_with_markov=False),
        Variant("no-markov-no-confidence", markov_rank=0, confidence=False, anchor=False),
        Variant("taps-edge", taps=(0, 2, 4)),
        Variant("sharded", reduced=True, head="gated", max_shard_size="24KB"),
    ]


OLD_TRANSFORMERS = (
    "vanilla-anchor-full",
    "vanilla-bonus-reduced",
    "gated-anchor-reduced",
    "rnn-bonus-full",
)


def variants(version: str) -> list[Variant]:
    """The variants of one release; over transformers 4 only the config differs, so four do."""
    if version.endswith("-tf4"):
        return [v for v in base_variants() if v.name in OLD_TRANSFORMERS]
    return base_variants() + (extra_variants() if version == "0.9.0" else [])


def env_python(version: str) -> Path:
    """The interpreter of one release's environment, or an error that says how to get it."""
    python = ENVS / f"speculators-{version}" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: run tools/fixtures_env.sh {version}")
    return python
