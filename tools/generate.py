"""Write what is generated from the code: `schemas/`, a page per command and per check. `--check` compares; `--freeze` keeps the schemas as released."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from speculators_convert.checks import CHECKS, Check
from speculators_convert.cli import build
from speculators_convert.diff import DiffResult
from speculators_convert.engines import engines
from speculators_convert.engines.rules import Engine
from speculators_convert.exits import ErrorDocument
from speculators_convert.explain import Explanations
from speculators_convert.findings import Report
from speculators_convert.formats import FORMATS
from speculators_convert.gate.codes import GATE_CODES
from speculators_convert.gate.verdict import GateReport
from speculators_convert.layouts import LAYOUTS
from speculators_convert.model import JsonValue, Model, pretty_json
from speculators_convert.policies import GatePolicy
from speculators_convert.publish.check import Verification
from speculators_convert.report.smoke_html import smoke_html
from speculators_convert.results.bench import BenchManifest, BenchPlan, BenchReport, RequestRow, ServerRun
from speculators_convert.results.probe import ProbeResult
from speculators_convert.results.smoke import SmokeResult
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.rank_manifest import RankManifest
from speculators_convert.rewrite.receipt import Receipt
from speculators_convert.sglang_plugin.doctor import Doctor
from speculators_convert.spec import DraftSpec

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS: dict[str, type[Model]] = {
    "report": Report,
    "draft-spec": DraftSpec,
    "plan": RewritePlan,
    "receipt": Receipt,
    "smoke": SmokeResult,
    "probe": ProbeResult,
    "bench": BenchReport,
    "bench-plan": BenchPlan,
    "bench-row": RequestRow,
    "bench-server": ServerRun,
    "bench-manifest": BenchManifest,
    "diff": DiffResult,
    "doctor": Doctor,
    "rank-manifest": RankManifest,
    "gate": GateReport,
    "policy": GatePolicy,
    "verification": Verification,
    "explanations": Explanations,
    "engine": Engine,
    "error": ErrorDocument,
}
READ_ONLY = ("policy", "engine")
"""Documents that people write and the tool reads."""
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "exclusiveMaximum": 1 << 31}}
PROMPT_LINE = {
    "title": "One line of a prompt file",
    "description": "Other keys are ignored",
    "type": "object",
    "properties": {
        "input_ids": {**_IDS, "minItems": 1},
        "text": {"type": "string", "minLength": 1, "description": "Encoded with the target's own tokenizer"},
        "reference_output_ids": {**_IDS, "description": "The target's own greedy continuation in float32"},
    },
    "oneOf": [{"required": ["input_ids"]}, {"required": ["text"]}],
}
EXIT_STATUS = {0: "pass", 1: "findings, or the gate failed", 2: "the call is wrong", 3: "cannot read or write", 4: "smoke could not run"}


def main() -> int:
    """Write or compare; 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    parser.add_argument("--freeze", action="store_true", help="at a release: also keep each schema under schemas/released/")
    options = parser.parse_args()
    files = [*generated(), *(released() if options.freeze else ())]
    expected = {path for path, _ in files}
    stale = [path for path, text in files if not path.exists() or path.read_text(encoding="utf-8") != text]
    left_over = [path for folder in ("docs/commands", "docs/checks") for path in (ROOT / folder).glob("*.md") if path not in expected]
    if not options.check:
        for path, text in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for path in left_over:
            path.unlink()
    if stale or left_over:
        print("stale, run make gen:" if options.check else "written:", *(path.relative_to(ROOT).as_posix() for path in (*stale, *left_over)))
    return int(options.check and bool(stale or left_over))


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file and its text."""
    for name, text in schemas():
        yield ROOT / "schemas" / f"{name}.schema.json", text
    commands = dict(command_pages())
    for name, text in commands.items():
        yield ROOT / "docs" / "commands" / f"{name}.md", text
    yield ROOT / "docs" / "cli.md", command_index(commands)
    for code, check in CHECKS.items():
        yield ROOT / "docs" / "checks" / f"{code}.md", check_page(check)
    yield ROOT / "docs" / "checks" / "index.md", check_index()
    yield ROOT / "docs" / "formats.md", formats_page()
    yield ROOT / "docs" / "engines.md", engines_page()
    yield ROOT / "docs" / "gate-codes.md", gate_codes_page()
    yield ROOT / "docs" / "smoke-report.html", smoke_html(SmokeResult.model_validate_json((ROOT / "schemas" / "examples" / "smoke.json").read_text(encoding="utf-8")))


def released() -> Iterator[tuple[Path, str]]:
    """The schemas as a release promises them; a test compares later ones with these."""
    for name, text in schemas():
        yield ROOT / "schemas" / "released" / f"{name}.schema.json", text


def schemas() -> Iterator[tuple[str, str]]:
    """Each schema by name."""
    for name, model in SCHEMAS.items():
        yield name, schema_text(name, model)
    yield "prompt", _identified("prompt", PROMPT_LINE)


def schema_text(name: str, model: type[Model]) -> str:
    """JSON Schema 2020-12 of one model: as it serialises, or as it may be written by hand."""
    schema = model.model_json_schema(mode="validation" if name in READ_ONLY else "serialization", by_alias=True)
    if name in READ_ONLY:
        schema["properties"]["$schema"] = {"type": "string", "description": "For editors"}
    return _identified(name, schema)


def _identified(name: str, schema: JsonValue) -> str:
    return pretty_json({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:spec-convert:{name}:1", **schema})


def command_pages() -> Iterator[tuple[str, str]]:
    """One page for each command that is in the help, at a fixed width."""
    for info in build().registered_commands:
        if not info.hidden and info.name and info.callback:
            says = " ".join((info.callback.__doc__ or "").split())
            yield info.name, f"# spec-convert {info.name}\n\n{says}\n\n```text\n{_help(info.name)}\n```\n\n{_statuses()}"


def command_index(commands: dict[str, str]) -> str:
    """The list of commands."""
    rows = [f"- [{name}](commands/{name}.md): {text.split(chr(10))[2]}" for name, text in commands.items()]
    return "# Commands\n\nGenerated from the command line itself by `make gen`.\n\n" + "\n".join(rows) + f"\n\n{_statuses()}"


def formats_page() -> str:
    """Input formats in the order in which they are tried, and output layouts."""
    rows = [f"| `{item.name}` | {_cell(item.title)} | {_cell(_first(item.matches.__doc__))} |" for item in FORMATS]
    layouts = [f"| `{name}` | {_cell(item.title)} |" for name, item in sorted(LAYOUTS.items())]
    return f"""# Formats and layouts

Generated by `make gen`. `inspect` says which format a checkpoint is in, and which key or tensor decided it.

## Formats that are read

Tried from the top; the first that recognises the checkpoint reads it. Each is one file in `src/speculators_convert/formats/`.

| Format | Producer | Recognised by |
|---|---|---|
{chr(10).join(rows)}

## Layouts that are written

`spec-convert normalize REF --layout NAME --out DIR`. Tensor data is copied byte for byte; a layout that cannot express a draft refuses before it writes.

| Layout | For |
|---|---|
{chr(10).join(layouts)}

## The normal form

Every format is read into one value, the [draft spec](schemas.md): names as the `speculators` library has them, `target_layer_ids` as outputs of
target layers, the anchor as `sampled` or `bonus`, `d2t` as offsets. What a file leaves open stays open: it is a finding, and `--set KEY=VALUE` states it.
"""


def engines_page() -> str:
    """What each engine version does, rule by rule, with the place where it was read."""
    head = [
        "# Engines",
        "",
        "Generated by `make gen` from `src/speculators_convert/engines/*.json`. A verdict is `loads`, `needs-normalize` or `unsupported` (also what nobody tried);",
        "without a rule that holds, an engine loads the draft. `{names}` are facts of the draft.",
        "",
    ]
    parts = ["\n".join(head)]
    for engine in engines():
        rows = [f"| {rule.verdict.value} | `{rule.decides}` | {_cell(rule.reason)} | {_cell(rule.source)} |" for rule in engine.rules]
        parts.append(
            "\n".join([f"\n## {engine.engine} {engine.version}\n", f"Read: {_cell(engine.read)}.\n", "| Verdict | Decided by | Why | Source |", "|---|---|---|---|", *rows, ""])
        )
    return "".join(parts)


def gate_codes_page() -> str:
    """The gate's own reasons."""
    rows = [f"| {code} | {_cell(item.title)} | {_cell(item.hint)} |" for code, item in GATE_CODES.items()]
    return "\n".join(
        ["# Reasons of the gate", "", "Generated by `make gen`. Findings keep the code of their check.", "", "| Code | What must hold | What to do |", "|---|---|---|", *rows, ""]
    )


def _first(doc: str | None) -> str:
    return " ".join((doc or "").split()).rstrip(".")


def check_page(check: Check) -> str:
    """What `explain` shows of one check."""
    return f"# {check.code}: {check.title}\n\nSeverity: {check.severity.value}. Shown by `spec-convert explain {check.code}`.\n\n{check.doc}\n"


def check_index() -> str:
    """The list of checks."""
    rows = [f"| [{code}]({code}.md) | {check.severity.value} | {_cell(check.title)} |" for code, check in CHECKS.items()]
    return "\n".join(
        ["# Checks", "", "Generated from the checks themselves by `make gen`. A code is never renumbered.", "", "| Code | Severity | What holds |", "|---|---|---|", *rows, ""]
    )


def _help(command: str) -> str:
    env = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": "110"}
    text = subprocess.run([sys.executable, "-m", "speculators_convert", command, "--help"], env=env, capture_output=True, text=True, check=True).stdout
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\x1b\[[0-9;]*m", "", text)).strip("\n")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")


def _statuses() -> str:
    return "Exit status: " + "; ".join(f"{status} {text}" for status, text in EXIT_STATUS.items()) + ".\n"


if __name__ == "__main__":
    sys.exit(main())
