#!/usr/bin/env python3
"""Coverage-guided fuzzing of one target with atheris (libFuzzer): python fuzz/run.py --target=NAME [CORPUS...] [-libfuzzer_flag=value...]

libFuzzer starts this file again when it merges, with the same arguments; it leaves those with two dashes alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["speculators_convert", "json", "targets"]):
    import targets


def main() -> None:
    name = next((item.removeprefix("--target=") for item in sys.argv if item.startswith("--target=")), "")
    if name not in targets.TARGETS:
        sys.exit(f"name a target: --target={'|'.join(targets.TARGETS)}")
    atheris.Setup(sys.argv, targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
