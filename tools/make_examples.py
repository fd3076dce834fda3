"""Write `schemas/examples/`: one real document for each schema, made by the commands themselves on the trained fixtures. Needs the engine extra."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "schemas" / "examples"
DRAFT, TARGET = "fixtures/trained/tiny-bonus-reduced-vanilla", "fixtures/trained/tiny-target"
POLICY = {
    "$schema": "../policy.schema.json",
    "schema_version": "1",
    "name": "team",
    "fail_on": "warning",
    "target": "required",
    "tp_degrees": [1, 2],
    "engines": [{"engine": "vLLM", "version": "0.33.0"}, {"engine": "SGLang", "verdicts": ["loads", "needs-normalize"]}],
    "evidence": {"required": True, "min_acceptance_length": 1.8, "min_prompts": 20, "max_age_days": 30},
    "waivers": [{"code": "DSP230", "reason": "the trainer states theta from the next release on", "expires": "2027-06-30"}],
}


def main() -> None:
    """Write all examples."""
    EXAMPLES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "written"
        _write("smoke", _run("smoke", DRAFT, "--target", TARGET, "--prompts", "fixtures/trained/prompts.jsonl", "--max-new-tokens", "16", "--format", "json"))
        _write("report", _run("inspect", DRAFT, "--target", TARGET, "--tp", "2", "--format", "json"))
        _write("plan", _run("normalize", DRAFT, "--layout", "speculators", "--dry-run", "--format", "json"))
        _write("receipt", _run("normalize", DRAFT, "--layout", "speculators", "--out", str(written), "--format", "json"))
        _write("verification", _run("verify", str(written), "--format", "json"), {str(written): "out/written"})
        _write("gate", _run("gate", DRAFT, "--target", TARGET, "--policy", "publish", "--evidence", "schemas/examples/smoke.json", "--format", "json"))
        _write("diff", _run("diff", DRAFT, str(written), "--format", "json"))
        _run("normalize", DRAFT, "--tp", "2", "--out", str(Path(folder) / "ranks"))
        _write("rank-manifest", (Path(folder) / "ranks" / "spec-convert.ranks.json").read_text(encoding="utf-8"))
        _write("doctor", _run("doctor", "--format", "json"))
        _write("probe", _run("probe", DRAFT, "--target", TARGET, "--prompts", "fixtures/trained/prompts.jsonl", "--format", "json"))
        _bench(Path(folder))
        _write("error", _run("inspect", "drafts/absent", "--format", "json"))
    _write("explanations", _run("explain", "DSP105", "--format", "json"))
    _write("draft-spec", json.dumps(json.loads((EXAMPLES / "report.json").read_text(encoding="utf-8"))["spec"]))
    _write("policy", json.dumps(POLICY), keep_order=True)
    _write("prompt", (ROOT / "fixtures/trained/prompts.jsonl").read_text(encoding="utf-8").splitlines()[0])
    shutil.copy(next((ROOT / "src/speculators_convert/engines").glob("vllm-*.json")), EXAMPLES / "engine.json")


def _bench(folder: Path) -> None:
    """A small run of the reference engine; its files are examples too."""
    requests, out = folder / "requests.jsonl", folder / "bench"
    requests.write_text("".join((ROOT / "fixtures/trained/prompts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    sizes = ("--output-tokens", "16", "--repeats", "2", "--warm-up", "1", "--device", "cpu")
    shown = {str(requests): "prompts.jsonl", str(sys.executable): "python"}
    _write("bench", _run("bench", DRAFT, "--target", TARGET, "--engine", "reference", "--workload", str(requests), *sizes, "--out", str(out), "--format", "json"), shown)
    server = out / "servers" / "001-drafted"
    for name, path in (("bench-plan", out / "plan.json"), ("bench-manifest", out / "manifest.json"), ("bench-server", server / "server.json")):
        _write(name, path.read_text(encoding="utf-8"), shown)
    _write("bench-row", (server / "rows.jsonl").read_text(encoding="utf-8").splitlines()[0])


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, "-m", "speculators_convert", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def _write(name: str, text: str, shown_as: dict[str, str] | None = None, *, keep_order: bool = False) -> None:
    """Paths of this machine are shown as relative ones."""
    for real, shown in {**(shown_as or {}), f"{ROOT}/": ""}.items():
        text = text.replace(real, shown)
    (EXAMPLES / f"{name}.json").write_text(json.dumps(json.loads(text), indent=2, sort_keys=not keep_order, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
