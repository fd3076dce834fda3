"""Drafts opened from the repository's fixtures, one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from speculators_convert.api import look
from speculators_convert.spec import DraftSpec


@dataclass(frozen=True)
class Opened:
    """A draft folder and its normal form."""

    folder: Path
    spec: DraftSpec


@pytest.fixture(scope="session")
def opened() -> Callable[[Path], Opened]:
    """Open a draft folder."""
    return lambda folder: Opened(folder, look(str(folder)).spec)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
