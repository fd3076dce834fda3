"""The claims that the documentation makes about recorded GPU runs, computed again from the raw rows in docs/evidence."""

import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from gpu import claims, plan

import gpu_plugin_more as more

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
RUNS = ("h200-x2-2026-11-29", "h200-x2-2026-11-29-b", "h200-x2-2026-11-30")
"""Runs that continue each other; each holds the lines that it added."""


def lines(*patterns: str) -> list[dict]:
    files = [path for run in RUNS for pattern in patterns for path in sorted((EVIDENCE / run).glob(pattern))]
    assert files
    texts = [gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text() for path in files]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_the_plugins_claims_hold() -> None:
    found = claims.report(lines("plugin.jsonl.gz", "agreement.jsonl"))
    assert [(claim, numbers) for claim, holds, numbers in found if not holds] == []
    said = {claim for claim, _, _ in found}
    for draft in plan.FIXTURES:
        assert f"{draft}.graph: graph gives eager's tokens" in said
        for mode in ("eager", "graph"):
            assert {f"{draft}.{mode}: acceptance is the reference engine's", f"{draft}.{mode}.agreement: slots agree with the reference engine"} <= said
            assert f"{draft}.{mode}: sampled requests end and accept drafts" in said
        assert {f"{draft}.graph.tp2: acceptance is that of one rank", f"{draft}.graph.tp2.agreement: slots agree with the reference engine"} <= said
    assert f"{plan.GATED}.graph.packed: the draft still fits the rounded target" in said
    assert f"{plan.BONUS} on FA3: the plugin gives back what stock loses" in said
    assert f"{plan.BONUS}.graph.fp8: the draft still fits the rounded target" in said
    assert "full vocabulary: the plugin changes nothing, drafted blocks" in said


def test_the_second_halfs_claims_hold() -> None:
    rows = lines("more.jsonl.gz")
    found = more.report(rows)
    assert [(claim, numbers) for claim, holds, numbers in found if not holds] == []
    assert {line["name"] for line in rows} == {item.name for item in more.slices("cuda")} | {"flush.stock", "flush.plugin"}


def test_no_server_was_further_from_the_engine_than_a_tie_may_be() -> None:
    rows = [json.loads(path.read_text()) for path in sorted((EVIDENCE / "h200-x2-2026-11-30").glob("server-ties-*.json"))]
    assert {(row["device"], row["reference"]) for row in rows} == {("NVIDIA H200", "decoding one token at a time"), ("NVIDIA H200", "the server's own gap")}
    for row in rows:
        assert {part["positions"] for part in row["rows"].values()} == {320}
        assert max(part["largest_error"] for part in row["rows"].values()) <= row["tolerance_steps"] / 4
