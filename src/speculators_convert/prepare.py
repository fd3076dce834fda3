"""Gather what a layout needs beside the draft: tables, and the comparison of the two heads. The step between reading and planning."""

from __future__ import annotations

from dataclasses import replace

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.head_comparison import compare_heads
from speculators_convert.layouts.base import Layout, Options
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec
from speculators_convert.vocabulary import read_tables


def gather(layout: Layout, spec: DraftSpec, checkpoint: Checkpoint, sources: tuple[Source, Source | None], chosen: Options) -> Options:
    """`chosen` with all evidence that `layout` asks for; `sources` are the draft's and, with `--target`, the target's."""
    tables = read_tables(checkpoint)
    source, target = sources
    heads = None
    if layout.compares_heads and chosen.pairing is not None and target is not None:
        heads = compare_heads(source, spec, tables, target, chosen.pairing)
    return replace(chosen, tables=tables, heads=heads)
