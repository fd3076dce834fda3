"""Recorded runs: the summary of each comes out of its raw rows again, bit for bit."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from speculators_convert import api

RECORDED = sorted((Path(__file__).parents[2] / "docs" / "evidence").glob("*/bench-*.tar.gz"))


def test_both_pairs_are_recorded() -> None:
    assert {path.name for path in RECORDED} == {"bench-trained.tar.gz", "bench-synthetic.tar.gz"}


@pytest.mark.parametrize("archive", RECORDED, ids=[f"{path.parent.name}/{path.name}" for path in RECORDED])
def test_a_recorded_run_is_computed_again(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    report = api.bench_analyze(folder)
    assert report.plan.repeats >= 3
    assert all(arm.requests == report.plan.repeats * report.plan.workload.requests for result in report.results for arm in result.arms)
