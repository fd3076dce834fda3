"""Where the stock SGLang lives, and the folder from which a test process takes this project and the CPU stand-in."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TRAINED = ROOT / "fixtures/trained"
LIBRARY = ROOT / "fixtures/library"
ENVIRONMENT = Path(os.environ.get("SPEC_CONVERT_CACHE", "~/.cache/spec-convert")).expanduser() / "envs/sglang-0.5.23"
PYTHON = ENVIRONMENT / "bin/python"


@dataclass(frozen=True)
class Site:
    """A folder made by `pip install --target`: the project as users install it, entry point included."""

    folder: Path

    def environ(self, *, plugins: str = "speculators_dspark,cpu_stand_in", tp: int = 1, **extra: str) -> dict[str, str]:
        """Environment of a test process. The Triton interpreter runs the kernels that have no CPU twin."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        threads = "|".join(str(rank % (os.cpu_count() or 1)) for rank in range(tp))
        return {
            **kept,
            "PYTHONPATH": str(self.folder),
            "SGLANG_PLUGINS": plugins,
            "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_CPU_OMP_THREADS_BIND": threads,
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **extra,
        }


def build_site(folder: Path) -> Site:
    """Install the project, the stand-in and the recorder, without dependencies: those are in the environment."""
    for package in (ROOT, Path(__file__).parents[1] / "stand_in", Path(__file__).parents[1] / "recorder"):
        copy = folder / "build" / package.name
        _copy_sources(package, copy)
        command = [str(PYTHON), "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(folder / "site"), str(copy)]
        subprocess.run(command, check=True, timeout=300)
    return Site(folder / "site")


def _copy_sources(package: Path, copy: Path) -> None:
    """A build writes beside its sources; leave the work tree clean."""
    if package != ROOT:
        shutil.copytree(package, copy)
        return
    copy.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (package / name).exists():
            shutil.copy(package / name, copy)
    shutil.copytree(package / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
