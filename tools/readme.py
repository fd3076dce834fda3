"""Put real output into README.md between its `text` fences. Run after a change of the output: `python tools/readme.py`; `--check` compares all but smoke."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
_FENCE = re.compile(r"(```text\n\$ (spec-convert [^\n]+)\n)(.*?)(\n```)", re.DOTALL)


def main() -> int:
    """Write, or with `--check` compare what does not depend on the machine's speed."""
    check = "--check" in sys.argv[1:]
    text = README.read_text(encoding="utf-8")
    stale: list[str] = []

    def fill(match: re.Match[str]) -> str:
        if check and " smoke " in match[2]:
            return match[0]
        done = subprocess.run([sys.executable, "-m", "speculators_convert", *match[2].split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode > 1:  # 1 is an answer: findings, or a gate that did not pass
            raise SystemExit(f"{match[2]}: {done.stderr}")
        output = shorten(done.stdout).rstrip("\n")
        if output != match[3]:
            stale.append(match[2])
        return match[1] + output + match[4]

    filled = _FENCE.sub(fill, text)
    if check:
        print(*(f"stale in README.md: {command}" for command in stale), sep="\n", end="\n" if stale else "")
        return int(bool(stale))
    README.write_text(filled, encoding="utf-8")
    return 0


def shorten(output: str) -> str:
    """The output without its two longest sections, whose place is marked, and without this machine's paths."""
    kept, skipping = [], False
    for line in output.replace(f"{ROOT}/", "").splitlines():
        if not line.startswith(" "):
            skipping = line.startswith(("Evidence", "Tensors"))
            if skipping:
                kept.append(line)
                kept.append("  ...")
        if not skipping or line == "":
            kept.append(line)
    return "\n".join(line for number, line in enumerate(kept) if not (line == "" and kept[number - 1] == ""))


if __name__ == "__main__":
    sys.exit(main())
