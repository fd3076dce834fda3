"""The claims that the documentation makes about recorded GPU runs, computed again from the raw rows in docs/evidence."""

import gzip
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import pytest
from gpu import claims, plan

import gpu_plugin_more as more
import gpu_two_servers as two_servers
import smoke_gpu
from speculators_convert.results.smoke import SmokeResult
from speculators_convert.smoke import proof

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
RUNS = ("h200-x2-2026-11-29", "h200-x2-2026-11-29-b", "h200-x2-2026-11-30", "h200-x2-2026-11-30-b")
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
    assert {f"{plan.BONUS}.graph.tp2.split: {claim}" for claim in ("files per rank give the whole file's tokens", "each rank reads its rows only")} <= said
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


SMOKE = sorted(EVIDENCE.glob("*/smoke-*.json"))


def test_each_case_for_two_hopper_gpus_is_recorded() -> None:
    """All that `make smoke-gpu` runs there, but for three drafts over MT-Bench, which ran on CPU servers; the control where it belongs."""
    recorded = {path.stem.removeprefix("smoke-"): SmokeResult.model_validate_json(path.read_bytes()) for path in SMOKE if path.parent.name.startswith("h200")}
    cases = {case.name: case for case in smoke_gpu.cases("9.0", 2)[0]}
    missing = set(cases) - set(recorded)
    assert {(cases[name].draft, cases[name].mt_bench) for name in missing} <= {(draft, True) for draft in (plan.GATED, "tiny-sliding-causal", "tiny-sliding-noncausal")}
    assert all((EVIDENCE / "cpu-2026-11-30" / f"smoke-mt-bench-{cases[name].draft}-plugin-cpu.json").exists() for name in missing)
    for name, case in cases.items():
        if case.control and name in recorded:
            assert [item.name for item in recorded[name].comparisons if "equals the null draft's" in item.name], name


@pytest.mark.parametrize("path", SMOKE, ids=[f"{path.parent.name}/{path.stem}" for path in SMOKE])
def test_a_recorded_smoke_run_passes_by_its_own_rows(path: Path) -> None:
    """Verdict, bounds and counts again from what the result holds of each prompt."""
    found = SmokeResult.model_validate_json(path.read_bytes())
    assert proof.judge(found.comparisons) == (found.verdict, found.reasons) == ("pass", ("every comparison holds",))
    greedy = [mode for mode in found.modes if not mode.temperature]
    assert {mode.mode for mode in greedy} <= {"eager", "graph"}
    assert {server.role for server in found.servers} >= {"drafted", "plain"}
    for mode in found.modes:
        steps, accepted = sum(item.verify_steps for item in mode.outcomes), sum(item.accepted_tokens for item in mode.outcomes)
        assert (mode.verify_steps, mode.accepted_tokens, mode.total) == (steps, accepted, len(mode.outcomes))
        assert mode.acceptance_length == pytest.approx((accepted + steps) / steps)
        assert mode.acceptance_length >= found.parameters["floor"]
    for item in found.equivalence:
        assert item.defects == sum(split.verdict == "defect" for split in item.splits) == 0
        assert item.ties == sum(split.verdict == "tie" for split in item.splits)
    exact = {(item.mode, item.tp, item.concurrency): item.exact for item in found.equivalence if item.against == "plain"}
    assert exact == {(mode.mode, mode.tp, mode.concurrency): mode.exact for mode in greedy}


def test_two_servers_at_once_left_nothing_behind() -> None:
    (path,) = EVIDENCE.glob("*/two-servers.json")
    found = json.loads(path.read_text())
    again = two_servers.claims(found)
    assert again == [(item["claim"], item["holds"], item["measured"]) for item in found["claims"]]
    assert all(holds for _, holds, _ in again)
    left, right = ([answer["output_ids"] for answer in server["answers"]] for server in found["servers"])
    assert left == right
    assert len(left) == 40


def test_servers_together_took_less_than_the_goal() -> None:
    (path,) = EVIDENCE.glob("*/server-starts.json")
    found = json.loads(path.read_text())
    assert statistics.median(found["both_seconds"]) / statistics.median(found["alone_seconds"]) == pytest.approx(found["ratio"])
    assert found["ratio"] <= found["goal"] == 1.3


def test_the_reference_engine_ran_with_two_ranks_over_nccl() -> None:
    (path,) = EVIDENCE.glob("*/reference-tp2.json")
    found = SmokeResult.model_validate_json(path.read_bytes())
    assert (found.engine, found.verdict, found.parameters["device"]) == ("reference", "pass", "cuda")
    assert {(mode.mode, mode.tp) for mode in found.modes} >= {("eager", 2), ("graph", 2)}
    assert all(item.holds for item in found.comparisons)
    assert all(item.defects == 0 for item in found.equivalence)


FIRST = EVIDENCE / "h200-2026-11-29"


def test_the_first_runs_claims_hold() -> None:
    rows = [json.loads(line) for line in gzip.decompress((FIRST / "plugin.jsonl.gz").read_bytes()).decode().splitlines()]
    found = claims.report(rows)
    assert [(claim, numbers) for claim, holds, numbers in found if not holds] == []
    assert sum("graph gives eager's tokens" in claim for claim, _, _ in found) == 4


def test_the_engines_graph_was_three_times_as_fast() -> None:
    found = json.loads((FIRST / "engine_graph.json").read_text())
    eager, graph = found["modes"]["eager"], found["modes"]["graph"]
    assert {name: eager[name] / graph[name] for name in found["ratios"]} == pytest.approx(found["ratios"])
    assert min(found["ratios"].values()) >= found["required_ratio"] == 3.0
    assert found["outputs_equal"] is True


def test_a_native_block_took_at_most_six_tenths_of_a_dense_one() -> None:
    found = json.loads((FIRST / "plugin_block.json").read_text())
    assert {row["drafting"] for row in found["rows"]} == {"sampling", "greedy"}
    for row in found["rows"]:
        native, dense = (statistics.median(row["milliseconds"][name]) for name in ("native block", "dense block"))
        assert native / dense <= found["limit"] == 0.6


def test_the_reference_engine_on_cuda_has_no_defect() -> None:
    for name, result in json.loads((FIRST / "smoke.json").read_text()).items():
        found = SmokeResult.model_validate(result)
        assert (found.verdict, found.parameters["device"]) == ("pass", "cuda"), name
        assert {(mode.mode, mode.total) for mode in found.modes} == {("eager", 20), ("graph", 20)}
        assert all(item.defects == 0 for item in found.equivalence)
        assert not name.endswith("float32") or all(mode.exact == 20 for mode in found.modes)
