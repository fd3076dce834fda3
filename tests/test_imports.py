"""What may be imported when: the core runs without torch, transformers and sglang, and never imports them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import speculators_convert
from checkpoints import BONUS, TARGET
from speculators_convert import inspect
from speculators_convert.findings import Report

_BLOCK = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "sglang"):
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
from speculators_convert.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["inspect", "normalize", "gate"])
def test_core_commands_never_import_the_engines(command: str, tmp_path: Path) -> None:
    extra = ["--out", str(tmp_path / "out")] if command == "normalize" else []
    done = subprocess.run([sys.executable, "-c", _BLOCK, command, str(BONUS), "--target", str(TARGET), *extra], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_package_import_is_light() -> None:
    code = "import sys, speculators_convert; print(sorted({'torch', 'transformers', 'sglang', 'numpy', 'huggingface_hub', 'typer', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_python_api_returns_models() -> None:
    report = inspect(str(BONUS), target=str(TARGET), tp=[2])
    assert isinstance(report, Report)
    assert report.spec is not None
    assert report.spec.gamma == 6


def test_no_exported_function_has_the_name_of_a_room_or_module() -> None:
    """Importing a submodule binds its name on the package: a function of that name would be gone after its first call."""
    package = Path(speculators_convert.__file__).parent
    inside = {path.parent.name for path in package.glob("*/__init__.py")} | {path.stem for path in package.glob("*.py")}
    assert inside & set(speculators_convert.__all__) == set()
    assert all(getattr(speculators_convert, name) is not None for name in speculators_convert.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = speculators_convert.nothing


def test_architecture_page_names_each_room_and_module() -> None:
    package = Path(speculators_convert.__file__).parent
    page = (Path(__file__).parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    assert sorted(name for name in rooms | modules if f"`{name}`" not in page) == []
    assert {"gate", "publish", "results", "rewrite", "target", "write"} <= rooms
