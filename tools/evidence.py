"""Manifest of recorded runs: `docs/evidence/<run>/manifest.json` binds each raw file by digest to the commit, the command and the machine.

python tools/evidence.py write RUN --commit HASH      # after copying raw files in; commands.json there states the command of each
python tools/evidence.py check                        # digests, commits in the history, age; also run by the tests
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
MAX_AGE_DAYS = 180
KEYS = {"schema_version", "date", "commit", "machine", "files"}


def main() -> int:
    """Write or check; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("run", nargs="?")
    parser.add_argument("--commit")
    options = parser.parse_args()
    if options.action == "write":
        write(EVIDENCE / options.run, options.commit)
    found = [problem for folder in runs() for problem in problems(folder, datetime.now(tz=UTC).date())]
    print("\n".join(found) if found else f"{len(runs())} recorded runs, each file as recorded")
    return int(bool(found))


def runs() -> list[Path]:
    """Folders of recorded runs."""
    return sorted(path.parent for path in EVIDENCE.glob("*/manifest.json"))


def write(folder: Path, commit: str) -> None:
    """The manifest of `folder`, from commands.json: {"date", "machine", "commands": {file: command}}."""
    stated = json.loads((folder / "commands.json").read_text())
    files = {name: {"command": command, "sha256": _digest(folder / name)} for name, command in stated["commands"].items()}
    document = {"schema_version": "1", "date": stated["date"], "commit": commit, "machine": stated["machine"], "files": files}
    (folder / "manifest.json").write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def problems(folder: Path, today: date) -> Iterator[str]:
    """What is wrong with one recorded run."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    if set(manifest) != KEYS:
        yield f"{folder.name}: manifest has the keys {sorted(manifest)}, expected {sorted(KEYS)}"
        return
    for name, entry in manifest["files"].items():
        if not (folder / name).is_file() or _digest(folder / name) != entry["sha256"]:
            yield f"{folder.name}/{name}: not the bytes that were recorded"
    extra = {path.name for path in folder.iterdir()} - set(manifest["files"]) - {"manifest.json", "commands.json"}
    if extra:
        yield f"{folder.name}: files without a record: {sorted(extra)}"
    age = (today - date.fromisoformat(manifest["date"])).days
    if age > MAX_AGE_DAYS:
        yield f"{folder.name}: {age} days old, at most {MAX_AGE_DAYS}: run it again"
    if (
        _git("rev-parse", "--is-shallow-repository") == "false"
        and subprocess.run(["git", "merge-base", "--is-ancestor", manifest["commit"], "HEAD"], cwd=ROOT, check=False).returncode
    ):
        yield f"{folder.name}: commit {manifest['commit']} is not in the history"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _in_history(commit: str) -> bool:
    return subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode == 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
