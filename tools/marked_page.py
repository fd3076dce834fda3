"""The part of a page between two marks that a tool writes; the rest of the page is written by hand."""

from __future__ import annotations

import sys
from pathlib import Path


def filled(text: str, begin: str, content: str, end: str) -> str:
    """The page with `content` between its marks, each a line."""
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def write_or_check(page: Path, wanted: str) -> int:
    """Exit status of a tool that writes the page or, with `--check`, says whether it is up to date."""
    if "--check" in sys.argv:
        return int(page.read_text() != wanted)
    page.write_text(wanted)
    return 0
