"""Coverage-guided fuzzing of one target with atheris (libFuzzer): python fuzz/run.py TARGET [CORPUS...] [-libfuzzer_flag=value...]"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["speculators_convert", "json", "targets"]):
    import targets


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in targets.TARGETS:
        sys.exit(f"name a target: {', '.join(targets.TARGETS)}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
