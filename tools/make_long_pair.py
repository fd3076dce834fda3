"""The trained pair with room for MT-Bench: `python tools/make_long_pair.py OUT`.

Copies `tiny-target` and the drafts of `fixtures/trained` to OUT and raises `max_position_embeddings` (and the tokenizer's
`model_max_length`) from 512 to 4096; weights and all else stay as they are. Rotary positions have no table, so this is a
change of config only. Both models were trained on windows of at most 256 tokens: far from there their text is poor and
acceptance says little, but drafted output must still be the target's own, which is what the pair is for.
Prints how many requests of MT-Bench fit, which needs the engine extra.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from speculators_convert.workloads import load

ROOT = Path(__file__).resolve().parent.parent
TRAINED = ROOT / "fixtures" / "trained"
TARGET = "tiny-target"
POSITIONS, OUTPUT_TOKENS = 4096, 64
_KEYS = {"config.json": "max_position_embeddings", "tokenizer_config.json": "model_max_length"}


def main() -> int:
    """Write the pair and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    write(options.out)
    for folder in (TRAINED / TARGET, options.out / TARGET):
        print(f"{folder}: {count(folder)}")
    return 0


def write(out: Path) -> None:
    """Target and drafts below `out`, which must not hold them."""
    for folder in sorted(path for path in TRAINED.iterdir() if path.is_dir()):
        copy = out / folder.name
        shutil.copytree(folder, copy)
        for name, key in _KEYS.items():
            if (copy / name).exists():
                (copy / name).write_text(json.dumps(_raised(json.loads((folder / name).read_text()), key), indent=2) + "\n")


def _raised(value: object, key: str) -> object:
    """The document with `key`, wherever it stands, at `POSITIONS`."""
    if isinstance(value, dict):
        return {name: POSITIONS if name == key else _raised(item, key) for name, item in value.items()}
    return [_raised(item, key) for item in value] if isinstance(value, list) else value


def count(target: Path) -> str:
    """How much of MT-Bench the target has room for."""
    workload = load("mt-bench", target, output_tokens=OUTPUT_TOKENS, both_turns=True)
    total, longest = len(workload.requests) + len(workload.skipped), max(len(item.input_ids) for item in workload.requests)
    skipped = f"; skipped: {', '.join(f'{item.name} ({item.input_tokens} tokens)' for item in workload.skipped)}" if workload.skipped else ""
    return f"{len(workload.requests)} of {total} requests fit with {OUTPUT_TOKENS} output tokens, the longest has {longest}{skipped}"


if __name__ == "__main__":
    sys.exit(main())
