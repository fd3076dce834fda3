"""What users get: wheel and source archive, installed into empty environments, with the commands of the demo run there."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ci.conftest import ROOT, environment

from speculators_convert.version import __version__

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Release:
    """Both built files."""

    wheel: Path
    archive: Path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Release:
    """Built from a checkout, never from the working tree."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(package)], env=environment(), check=True, capture_output=True)
    return Release(next(out.glob("*.whl")), next(out.glob("*.tar.gz")))


def _install(folder: Path, what: str, *more: str) -> Path:
    """The `bin` of a new environment with `what` in it and nothing else."""
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *more, what]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def _run(binaries: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment(PATH=f"{binaries}:/usr/bin:/bin"), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    return _install(tmp_path_factory.mktemp("core") / "env", str(release.wheel))


def test_wheel_and_archive_hold_every_file_of_the_package(release: Release, package: Path) -> None:
    expected = {path.relative_to(package / "src").as_posix() for path in (package / "src/speculators_convert").rglob("*") if path.is_file()}
    with zipfile.ZipFile(release.wheel) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    with tarfile.open(release.archive) as archive:
        held = {name.partition("/src/")[2] for name in archive.getnames() if "/src/speculators_convert/" in name}
        assert expected <= held


def test_the_core_runs_from_the_wheel_without_torch(core: Path, tmp_path: Path) -> None:
    draft, target = str(ROOT / "fixtures/trained/tiny-bonus-reduced-vanilla"), str(ROOT / "fixtures/trained/tiny-target")
    assert _run(core, "spec-convert", "--version", cwd=tmp_path).stdout.strip() == __version__
    assert _run(core, "spec-convert", "inspect", draft, "--target", target, cwd=tmp_path).returncode == 0
    assert _run(core, "spec-convert", "normalize", draft, "--layout", "speculators", "--out", "out", cwd=tmp_path).returncode == 0
    assert _run(core, "spec-convert", "verify", "out", cwd=tmp_path).returncode == 0
    for form in ("text", "json", "sarif", "junit", "markdown"):
        assert _run(core, "spec-convert", "gate", "out", "--format", form, cwd=tmp_path).returncode == 0
    smoke = _run(core, "spec-convert", "smoke", cwd=tmp_path)
    assert smoke.returncode == 4
    assert "speculators-convert[engine]" in smoke.stdout + smoke.stderr


def test_the_archive_installs_too(release: Release, tmp_path: Path) -> None:
    binaries = _install(tmp_path / "env", str(release.archive))
    assert _run(binaries, "spec-convert", "explain", "DSP105", cwd=tmp_path).returncode == 0


def test_the_demo_runs_from_the_wheel_in_an_empty_environment(release: Release, tmp_path: Path) -> None:
    torch = next(line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))
    binaries = _install(tmp_path / "env", f"{release.wheel}[engine]", torch)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/demo.sh").write_text((ROOT / "tools/demo.sh").read_text(encoding="utf-8"))
    demo = _run(binaries, "sh", "tools/demo.sh", cwd=tmp_path)
    assert demo.returncode == 0, demo.stdout[-2000:] + demo.stderr[-2000:]
    assert demo.stdout.count("verdict pass") == demo.stdout.count("$ spec-convert smoke") > 0
    assert _run(binaries, "spec-convert", "smoke", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("runner", [("uvx", "--from"), ("pipx", "run", "--spec")])
def test_run_without_installing(release: Release, tmp_path: Path, runner: tuple[str, ...]) -> None:
    beside = Path(sys.executable).parent
    env = environment(PATH=f"{beside}:/usr/bin:/bin", PIPX_HOME=str(tmp_path / "pipx"))
    done = subprocess.run([*runner, str(release.wheel), "spec-convert", "--version"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, __version__), done.stderr


def test_the_changelog_has_this_version() -> None:
    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
