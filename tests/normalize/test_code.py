"""`--copy-code`: Python files travel only when asked for, and nothing of them is ever run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from normalizing import normalize_draft, synthetic_draft
from typer.testing import CliRunner

from speculators_convert.cli import build
from speculators_convert.rewrite.receipt import verify
from speculators_convert.sources import MemorySource

AUTO_MAP = {"": "config.DSparkSpeculatorConfig"}


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def files(tmp_path: Path) -> dict[str, bytes]:
    """A draft whose code leaves a mark when it is run."""
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n".encode()
    return {
        **synthetic_draft(reduced=False),
        "config.py": code,
        "modeling.py": code + b"\r\n",
        "sub/deep.py": code,
        "run.sh": b"true\n",
        "native.so": b"\x7fELF",
        "model.py": b"\x80\x04.",
    }


def test_code_travels_byte_for_byte_and_is_not_run(tmp_path: Path) -> None:
    source = files(tmp_path)
    written = normalize_draft(MemorySource(source), tmp_path / "out", copy_code=True)
    for name in ("config.py", "modeling.py"):
        assert (written.folder / name).read_bytes() == source[name]
    assert config_of(written.folder)["auto_map"] == AUTO_MAP
    assert not (tmp_path / "ran").exists()
    assert verify(written.folder) == ()
    code, kept = written.receipt.predicate.notes[-2:]
    assert "config.py, modeling.py" in code
    assert "not run" in code
    assert "auto_map was kept" in kept
    left_out = {item.name for item in written.receipt.predicate.dropped}
    assert {"sub/deep.py", "run.sh", "native.so", "model.py"} <= left_out
    assert "config.json:auto_map" not in left_out


def test_only_the_auto_map_differs_between_the_two_configs(tmp_path: Path) -> None:
    with_code = config_of(normalize_draft(MemorySource(files(tmp_path)), tmp_path / "with", copy_code=True).folder)
    without = config_of(normalize_draft(MemorySource(files(tmp_path)), tmp_path / "without").folder)
    assert {key: value for key, value in with_code.items() if key != "auto_map"} == without


@pytest.mark.parametrize("layout", ["sglang", "specforge"])
def test_other_layouts_copy_the_files_and_leave_the_auto_map_out(tmp_path: Path, layout: str) -> None:
    written = normalize_draft(MemorySource(files(tmp_path)), tmp_path / "out", layout, copy_code=True)
    assert (written.folder / "config.py").is_file()
    assert "auto_map" not in config_of(written.folder)
    reasons = {item.name: item.why for item in written.receipt.predicate.dropped}
    assert reasons["config.json:auto_map"] == "the layout's config names no code"


def test_a_draft_without_code_says_so(tmp_path: Path) -> None:
    source = {path: data for path, data in synthetic_draft().items() if path != "config.py"}
    assert any(note.startswith("no code was copied") for note in normalize_draft(MemorySource(source), tmp_path / "out", copy_code=True).receipt.predicate.notes)


def test_the_flag_at_the_command_line(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    for name, data in synthetic_draft().items():
        (draft / name).write_bytes(data)
    for flags, expected in (([], False), (["--copy-code"], True)):
        out = tmp_path / f"out{len(flags)}"
        result = CliRunner().invoke(build(), ["normalize", str(draft), "--out", str(out), *flags])
        assert result.exit_code == 0, result.output
        assert (out / "config.py").exists() is expected
        assert ("auto_map" in config_of(out)) is expected
