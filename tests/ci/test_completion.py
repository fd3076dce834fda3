"""Shell completion, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ci.conftest import ROOT, environment

BASH = shutil.which("bash")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ga", {"gate"}),
        ("pub", {"publish-check"}),
        ("gate --pol", {"--policy"}),
        ("gate --format sa", {"sarif"}),
        ("gate --policy p", {"publish"}),
        ("explain DSP10", None),
        ("explain GATE01", None),
    ],
)
def test_bash_completes_commands_options_and_values(tmp_path: Path, typed: str, expected: set[str] | None) -> None:
    command = tmp_path / "spec-convert"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m speculators_convert "$@"\n')
    command.chmod(0o755)
    words = ["spec-convert", *typed.split(" ")]
    script = f"""
eval "$(_SPEC_CONVERT_COMPLETE=source_bash spec-convert)"
COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; COMP_LINE="{" ".join(words)}"; COMP_POINT=${{#COMP_LINE}}
$(complete -p spec-convert | sed 's/.*-F \\([^ ]*\\).*/\\1/') spec-convert "{words[-1]}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = environment(PATH=f"{tmp_path}:/usr/bin:/bin", PYTHONPATH=str(ROOT / "src"))
    assert BASH
    done = subprocess.run([BASH, "--norc", "-c", script], env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = set(done.stdout.split())
    assert done.returncode == 0, done.stderr
    if expected is None:
        assert len(found) > 3
        assert all(item.startswith(words[-1]) for item in found)
    else:
        assert found == expected
