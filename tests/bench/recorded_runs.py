"""The recorded runs of docs/evidence, unpacked once."""

from __future__ import annotations

import tarfile
import tempfile
from functools import cache
from pathlib import Path

from speculators_convert import api
from speculators_convert.results.bench import BenchReport

RECORDED = sorted((Path(__file__).parents[2] / "docs" / "evidence").glob("*/bench-*.tar.gz"))


def unpack(archive: Path, folder: Path) -> Path:
    """The run's folder, inside `folder`."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


@cache
def summary(pair: str) -> BenchReport:
    """The summary of the newest recorded run of a pair."""
    archive = [path for path in RECORDED if path.name == f"bench-{pair}.tar.gz"][-1]
    with tempfile.TemporaryDirectory() as scratch:
        return api.bench_analyze(unpack(archive, Path(scratch)))
