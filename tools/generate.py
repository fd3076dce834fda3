"""Write what is generated from the code: `schemas/` and `docs/cli.md`. With `--check`, compare instead and fail on a difference."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from speculators_convert.findings import Report
from speculators_convert.model import Model, pretty_json
from speculators_convert.plan import RewritePlan
from speculators_convert.receipt import Receipt
from speculators_convert.smoke_result import SmokeResult
from speculators_convert.spec import DraftSpec

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS: dict[str, type[Model]] = {"report": Report, "draft-spec": DraftSpec, "plan": RewritePlan, "receipt": Receipt, "smoke": SmokeResult}
COMMANDS = ("inspect", "normalize", "smoke")


def main() -> int:
    """Write or compare; 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    stale = []
    for path, text in generated():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print("stale, run make gen:" if check else "written:", *stale)
    return int(check and bool(stale))


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file and its text."""
    for name, model in SCHEMAS.items():
        yield ROOT / "schemas" / f"{name}.schema.json", schema_text(name, model)
    yield ROOT / "docs" / "cli.md", cli_page()


def schema_text(name: str, model: type[Model]) -> str:
    """JSON Schema 2020-12 of one model, as it serialises."""
    schema = model.model_json_schema(mode="serialization", by_alias=True)
    return pretty_json({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:spec-convert:{name}:1", **schema})


def cli_page() -> str:
    """The help of each command, at a fixed width."""
    parts = ["# Commands\n\nGenerated from the command line itself by `make gen`.\n"]
    for command in ((), *((name,) for name in COMMANDS)):
        title = " ".join(("spec-convert", *command))
        parts.append(f"\n## {title}\n\n```text\n{_help(command)}\n```\n")
    return "".join(parts)


def _help(command: tuple[str, ...]) -> str:
    env = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "110"}
    text = subprocess.run([sys.executable, "-m", "speculators_convert", *command, "--help"], env=env, capture_output=True, text=True, check=True).stdout
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\x1b\[[0-9;]*m", "", text)).strip("\n")


if __name__ == "__main__":
    sys.exit(main())
