"""Runs the files of `inside/` in the SGLang environment, each in a process of its own, two at a time, and shows what failed there."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from sglang_harness.environment import PYTHON, Site

INSIDE = Path(__file__).parent / "inside"
FILES = sorted(path.name for path in INSIDE.glob("test_*.py"))
Runs = dict[str, Future[subprocess.CompletedProcess[str]]]


def run_file(site: Site, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["-q", "-c", "/dev/null", "--rootdir", str(INSIDE), "--confcutdir", str(INSIDE), "-p", "no:cacheprovider", "--tb=short"]
    command = [str(PYTHON), "-W", "ignore", "-m", "pytest", *options, str(INSIDE / name)]
    return subprocess.run(command, env=site.environ(), cwd=folder, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The files that the selected tests ask for."""
    wanted = [item.callspec.params["name"] for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(run_file, site, name, tmp_path_factory.mktemp(name.removesuffix(".py"))) for name in wanted}


@pytest.mark.parametrize("name", FILES)
def test_inside(runs: Runs, name: str) -> None:
    done = runs[name].result()
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
