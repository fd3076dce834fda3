"""Gather what a layout needs beside the draft: tables, the comparison of the two heads, the vocabulary to keep.

The step between reading and planning, and the last one that reads before the plan is followed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speculators_convert.checkpoint import MAX_DOCUMENT_BYTES, Checkpoint, parse_document
from speculators_convert.errors import SourceError, UsageError
from speculators_convert.layouts.base import Kept, Layout, Options
from speculators_convert.sources import Source
from speculators_convert.sources.bounded import read_bounded
from speculators_convert.spec import DraftSpec, known
from speculators_convert.target.head_comparison import compare_heads
from speculators_convert.target.pairing import text_config
from speculators_convert.target.vocabulary import read_tables
from speculators_convert.write.reduce import always_kept, choose, count_tokens, from_mask

MAX_MASK_BYTES = 256 * 1024 * 1024
MAX_LINE_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reduction:
    """`--reduce-vocab`: a size or a t2d mask file, and the corpus that is counted."""

    what: str
    corpus: Path | None = None


def gather(layout: Layout, spec: DraftSpec, checkpoint: Checkpoint, sources: tuple[Source, Source | None], chosen: Options) -> Options:
    """`chosen` with all evidence that `layout` asks for; `sources` are the draft's and, with `--target`, the target's."""
    tables = read_tables(checkpoint)
    source, target = sources
    heads = None
    if layout.compares_heads and chosen.pairing is not None and target is not None:
        heads = compare_heads(source, spec, tables, target, chosen.pairing)
    return replace(chosen, tables=tables, heads=heads)


def kept_vocabulary(reduction: Reduction, spec: DraftSpec, target: Source | None, target_checkpoint: Checkpoint | None) -> Kept:
    """The ids that `reduction` keeps; the target's tokenizer says which must stay."""
    if target is None or target_checkpoint is None:
        raise UsageError("which tokens must stay is written in the target's tokenizer", where="--reduce-vocab", expected="a target", hint="pass --target REF")
    vocab_size = known(spec.target_vocab_size, "vocab_size")
    documents = target_checkpoint.documents
    configs = [text_config(dict(target_checkpoint.config)), *(item for item in [documents.get("generation_config.json")] if isinstance(item, dict))]
    always = always_kept(_tokenizer(target), configs)
    counts = None if reduction.corpus is None else count_tokens(_lines(reduction.corpus), vocab_size, str(reduction.corpus))
    if not reduction.what.isdecimal():
        return from_mask(_mask(Path(reduction.what)), vocab_size, always, counts)
    if counts is None:
        raise UsageError(
            "a vocabulary of a given size is chosen by how often tokens occur",
            where="--reduce-vocab",
            measured=reduction.what,
            expected="a corpus",
            hint="pass --corpus FILE, JSON Lines with token ids",
        )
    return choose(counts, int(reduction.what), always)


def _tokenizer(target: Source) -> object:
    found = next((info for info in target.files() if info.path == "tokenizer.json" and not info.refused), None)
    if found is None or found.size_bytes > MAX_DOCUMENT_BYTES:
        raise UsageError("the target has no tokenizer.json that can be read", where=target.id.name, hint="pass a target with its tokenizer")
    try:
        return parse_document(target.read(found.path, 0, found.size_bytes))
    except (ValueError, RecursionError) as error:
        raise SourceError("the target's tokenizer.json is not valid JSON", where=target.id.name, measured=str(error)[:80]) from error


def _mask(path: Path) -> NDArray[np.generic]:
    try:
        loaded = np.load(io.BytesIO(read_bounded(path, MAX_MASK_BYTES)), allow_pickle=False)
    except OSError as error:
        raise SourceError(f"cannot read the mask ({error.strerror})", where=str(path), hint="--reduce-vocab takes a number or a .npy file") from error
    except (ValueError, EOFError) as error:
        raise UsageError("not a plain .npy array", where=str(path), measured=str(error)[:80], expected="the t2d.npy that speculators writes") from error
    if not isinstance(loaded, np.ndarray):
        raise UsageError("not a plain .npy array", where=str(path), measured=type(loaded).__name__, expected="the t2d.npy that speculators writes")
    return loaded


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in iter(lambda: file.readline(MAX_LINE_CHARACTERS), ""):
                if len(line) == MAX_LINE_CHARACTERS:
                    raise SourceError("a line of the corpus is too long", where=str(path), measured=f"{len(line)} characters or more", expected=f"below {MAX_LINE_CHARACTERS}")
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the corpus ({error})", where=str(path)) from error
