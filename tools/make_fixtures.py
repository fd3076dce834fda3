"""Rebuild the checkpoint fixtures, or check that they are the ones committed.

    tools/make_fixtures.py --check      compare fixtures/ with fixtures/SHA256SUMS
    tools/make_fixtures.py library      random-weight drafts, saved by three releases
    tools/make_fixtures.py sliding      the two trained sliding-window drafts
    tools/make_fixtures.py oracle       logits from the speculators package's own model
    tools/make_fixtures.py measure      acceptance of the trained drafts, by reading
    tools/make_fixtures.py sums         rewrite fixtures/SHA256SUMS

Checking needs nothing but Python.  The builders start one process for each release of
the speculators package in its own environment (see ``tools/fixtures_env.sh``), because
the point of the files is that the package itself wrote them.  The random weights are
reproducible; a retraining is not byte-identical, and need not be.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from fixtures_common import FIXTURES, LIBRARY, ORACLE, TOOLS, TRAINED, VERSIONS, env_python

SUMS = FIXTURES / "SHA256SUMS"
NEWEST = VERSIONS[-1]
SLIDING_DRAFTS = ("tiny-sliding-causal", "tiny-sliding-noncausal")


def run(version: str, script: str, *arguments: str) -> None:
    """Run a builder in one release's environment."""
    command = [str(env_python(version)), "-W", "ignore", str(TOOLS / script), *arguments]
    environment = {"OMP_NUM_THREADS": "1", "LOGURU_LEVEL": "ERROR", **os.environ}
    subprocess.run(command, check=True, env=environment)


def trained_drafts() -> list[str]:
    """Names of the trained drafts that are there."""
    return sorted(p.name for p in TRAINED.iterdir() if p.is_dir() and p.name != "tiny-target")


def make_library(versions: Sequence[str]) -> None:
    """The shared random target (newest release), then each release's drafts."""
    if NEWEST in versions:
        run(NEWEST, "fixtures_library.py", "--version", NEWEST, "--target")
    for version in versions:
        run(version, "fixtures_library.py", "--version", version)


def make_oracle(versions: Sequence[str]) -> None:
    """Oracle files of each release's drafts and of the trained ones."""
    for version in versions:
        run(version, "fixtures_oracle.py", "--version", version)
    if NEWEST in versions:
        run(NEWEST, "fixtures_oracle.py", "--trained", *trained_drafts())


def make_sliding(_versions: Sequence[str]) -> None:
    """Train and save the sliding-window drafts."""
    run(NEWEST, "fixtures_train.py", *SLIDING_DRAFTS)


def measure(_versions: Sequence[str]) -> None:
    """Acceptance of the sliding-window drafts under right and wrong readings."""
    run(NEWEST, "fixtures_measure.py", *SLIDING_DRAFTS)
    run(NEWEST, "fixtures_measure.py", "--logits", *SLIDING_DRAFTS)


def current_sums() -> dict[str, str]:
    """SHA-256 of every file of the groups built here."""
    folders = (LIBRARY, TRAINED, ORACLE)
    paths = (p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file())
    return {p.relative_to(FIXTURES).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p != SUMS and p.suffix != ".md"}


def write_sums(_versions: Sequence[str] = ()) -> None:
    """Write the sums in the format of sha256sum."""
    lines = [f"{digest}  {name}\n" for name, digest in current_sums().items()]
    SUMS.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} files")


def check() -> int:
    """Report every file that is changed, missing or new."""
    lines = SUMS.read_text(encoding="utf-8").splitlines()
    wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = current_sums()
    problems = [
        f"{'missing' if name not in found else 'new' if name not in wanted else 'changed'}: {name}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    print("\n".join(problems) or f"{len(found)} files as recorded")
    return 1 if problems else 0


GROUPS: dict[str, Callable[[Sequence[str]], None]] = {
    "library": make_library,
    "sliding": make_sliding,
    "oracle": make_oracle,
    "measure": measure,
    "sums": write_sums,
}


def main() -> int:
    """Build one group, or check all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="?", choices=GROUPS)
    parser.add_argument("--check", action="store_true", help="verify SHA256SUMS and stop")
    parser.add_argument("--version", choices=VERSIONS, action="append", help="only this release")
    options = parser.parse_args()
    if options.check:
        return check()
    if options.group is None:
        parser.error("name a group or give --check")
    GROUPS[options.group](options.version or VERSIONS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
