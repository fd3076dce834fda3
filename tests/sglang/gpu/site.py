"""The project and the recorder as installed distributions, on a host without network: sources copied, entry points written."""

import shutil
from pathlib import Path

from sglang_harness.environment import ROOT

VERSION = (ROOT / "src/speculators_convert/version.py").read_text().split('"')[-2]
ENTRY_POINTS = {
    "speculators-convert": "speculators_dspark = speculators_convert.sglang_plugin:register",
    "spec-convert-draft-recorder": "draft_recorder = draft_recorder:register",
}


def make_site(folder: Path) -> Path:
    """A folder for PYTHONPATH."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/speculators_convert", folder / "speculators_convert", ignore=ignored)
    shutil.copytree(ROOT / "tests/sglang/recorder/draft_recorder", folder / "draft_recorder", ignore=ignored)
    for name, entry in ENTRY_POINTS.items():
        version = VERSION if name == "speculators-convert" else "0"
        information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (information / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{entry}\n")
    return folder
