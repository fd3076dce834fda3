"""The runner of `make smoke-gpu`: which cases there are for a GPU, and what becomes evidence. The cases themselves need a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
COMMIT = "0" * 40


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import smoke_gpu  # noqa: PLC0415

        yield smoke_gpu
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize(("capability", "kinds"), [("9.0", {"fa3", "triton", "flashinfer"}), ("10.0", {"flashinfer", "triton", "fa4"}), ("12.0", {"flashinfer", "triton"})])
def test_each_fixture_runs_both_ways_on_what_the_table_has(capability: str, kinds: set[str], tool: ModuleType) -> None:
    found, left_out = tool.cases(capability)
    assert {case.draft_backend for case in found} == kinds
    assert {(case.draft, case.way) for case in found} == {(draft, way) for draft in tool.DRAFTS for way in ("stock", "plugin")}
    assert [case.draft for case in found if case.mt_bench] == tool.DRAFTS
    assert len({case.name for case in found}) == len(found)
    assert all(reason for _, reason in left_out)


def test_the_control_runs_with_each_fixture_and_two_ranks_where_there_are_two_gpus(tool: ModuleType) -> None:
    one, two = (tool.cases("9.0", gpus)[0] for gpus in (1, 2))
    assert [(case.draft, case.way) for case in one if case.control and not case.mt_bench] == [(draft, way) for way in ("plugin", "stock") for draft in tool.DRAFTS]
    kinds = {draft: "triton" if "sliding" in draft else "fa3" for draft in tool.DRAFTS}
    ranks = [case.name for case in two if case.tp == 2]
    assert ranks[:6] == ["bundled-pair-plugin-tp2", *(f"{draft}-plugin-{kind}-tp2" for draft, kind in kinds.items())]
    assert sorted(name.rpartition("-stock-")[0] for name in ranks[6:]) == tool.DRAFTS
    assert "tiny-bonus-reduced-vanilla-stock-fa3-tp2" not in ranks
    assert {case.name for case in two if case.tp == 1} == {case.name for case in one}


def test_patterns_choose_the_cases_their_order_and_the_control(tool: ModuleType) -> None:
    found = tool.cases("9.0", 2)[0]
    assert tool.chosen(found, [], "", "eager,graph") == found
    few = tool.chosen(found, ["^mt-bench-tiny-bonus", "^bundled", "bonus.*plugin-fa3"], "^bundled|plugin-fa3$", "graph")
    assert [(case.name, case.control, case.modes) for case in few] == [
        ("mt-bench-tiny-bonus-reduced-vanilla-plugin-fa3", True, "graph"),
        ("bundled-pair-plugin-tp2", True, "eager,graph"),
        ("tiny-bonus-reduced-vanilla-plugin-fa3", True, "eager,graph"),
        ("tiny-bonus-reduced-vanilla-plugin-fa3-tp2", False, "eager,graph"),
    ]


def test_the_known_defect_is_not_run_and_named(tool: ModuleType) -> None:
    found, left_out = tool.cases("9.0")
    names = {case.name for case in found}
    assert "tiny-bonus-reduced-vanilla-plugin-fa3" in names
    assert "tiny-bonus-reduced-vanilla-stock-fa3" not in names
    assert "counts gamma rows" in dict(left_out)["tiny-bonus-reduced-vanilla-stock-fa3"]
    assert "older tokens than in training" in dict(left_out)["tiny-sliding-causal-plugin-fa3"]


def test_the_list_needs_no_gpu_and_says_what_is_unproven() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools/smoke_gpu.py"), "--list", "--capability", "10.0"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sm_100")
    assert "Never run on such a device by this project" in done.stdout


def test_the_command_is_one_that_smoke_takes(tool: ModuleType, tmp_path: Path) -> None:
    """Parsed by the real command line, which then finds no such target."""
    case = tool.Case("tiny-anchor-full-vanilla", "plugin", "fa3", "triton")
    words = tool.command(case, str(tool.TRAINED / case.draft), "/no/such", "/no/file", str(tmp_path / "out.json"))
    done = subprocess.run([sys.executable, "-m", "speculators_convert", *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "No such option" not in done.stderr
    assert "/no/such" in done.stdout + done.stderr


def test_results_become_evidence_that_checks_out_and_names_no_folder_of_this_machine(tool: ModuleType, tmp_path: Path) -> None:
    work, folder = tmp_path / "work", tmp_path / "run"
    result = json.loads((ROOT / "schemas/examples/smoke.json").read_text())
    for name in ("one", "two"):
        (work / name).mkdir(parents=True)
        (work / name / "smoke-result.json").write_text(json.dumps({**result, "environment": {"here": f"{ROOT}/fixtures/trained"}}))
        (work / name / "command.txt").write_text(f"spec-convert smoke {ROOT}/fixtures/trained/tiny-target\n")
        tool.record(folder, work, "1 x GPU", COMMIT)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == ["smoke-one.json", "smoke-two.json"]
    assert manifest["files"]["smoke-one.json"]["command"] == "spec-convert smoke fixtures/trained/tiny-target"
    assert json.loads((folder / "smoke-two.json").read_text())["environment"] == {"here": "fixtures/trained"}
    problems = list(tool.evidence.problems(folder, datetime.now(tz=UTC).date()))
    assert [item for item in problems if "is not in the history" not in item] == []
    (folder / "smoke-one.json").write_text("{}")
    assert any("not the bytes that were recorded" in item for item in tool.evidence.problems(folder, datetime.now(tz=UTC).date()))


def test_the_bundled_pair_runs_with_nothing_chosen_but_the_ranks(tool: ModuleType) -> None:
    (case,) = tool.chosen(tool.cases("9.0", 2)[0], [tool.PAIR], "", "eager,graph")
    assert tool.command(case, "draft", "target", "prompts", "out") == ["smoke", "--tp", "2", "--out", "out"]


def test_cases_of_several_ranks_ask_ten_prompts(tool: ModuleType, tmp_path: Path) -> None:
    """Their servers are asked one after another."""
    case = tool.Case("tiny-anchor-full-vanilla", "plugin", "fa3", "fa3", tp=2)
    prompts = tool._inputs(case, tmp_path)[2]
    assert prompts.read_text().splitlines() == (tool.TRAINED / "prompts.jsonl").read_text().splitlines()[:10]
    assert tool.command(case, "draft", "target", str(prompts), "out", 5)[-3:] == ["--no-control", "--parallel", "5"]


def test_rows_of_the_same_server_are_taken_from_a_finished_case(tool: ModuleType, tmp_path: Path) -> None:
    """Ordinary decoding depends on the target and its ranks, not on the draft; what is unfinished or another target's is not taken."""
    draft, bonus = "tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla"
    done, unfinished, long = f"{draft}-plugin-fa3", f"{bonus}-stock-fa3", f"mt-bench-{draft}-plugin-fa3"
    for name, server in [(done, "plain-eager-tp1"), (done, "drafted-eager-tp1"), (unfinished, "plain-eager-tp1"), (long, "plain-eager-tp1")]:
        for folder, file in (("rows", f"{server}.json"), ("logs", f"{server}.log")):
            (tmp_path / name / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / folder / file).write_text(name)
    for name in (done, long):
        (tmp_path / name / "smoke-result.json").write_text("{}")
    for case, expected in [
        (tool.Case(bonus, "plugin", "fa3", "fa3"), {"plain-eager-tp1.json": done}),
        (tool.Case(draft, "plugin", "fa3", "fa3", tp=2), {}),
        (tool.Case("tiny-sliding-causal", "plugin", "fa3", "fa3"), {}),
    ]:
        tool.share(case, tmp_path)
        assert {path.name: path.read_text() for path in (tmp_path / case.name / "rows").glob("*")} == expected
        assert {path.stem for path in (tmp_path / case.name / "logs").glob("*")} == {Path(name).stem for name in expected}


@pytest.mark.parametrize("draft", ["tiny-anchor-full-vanilla", "tiny-sliding-noncausal"])
def test_stock_gets_a_rewritten_draft_and_the_plugin_the_librarys(draft: str, tool: ModuleType, tmp_path: Path) -> None:
    stock, target, prompts = tool._inputs(tool.Case(draft, "stock", "fa3", "triton"), tmp_path)
    assert json.loads((stock / "config.json").read_text())["architectures"] == ["Qwen3DSparkModel"]
    assert tool._inputs(tool.Case(draft, "stock", "fa3", "triton"), tmp_path)[0] == stock, "made once"
    plugin, *same = tool._inputs(tool.Case(draft, "plugin", "fa3", "triton"), tmp_path)
    assert (plugin, same) == (tool.TRAINED / draft, [target, prompts])


@pytest.mark.parametrize("draft", ["tiny-anchor-full-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal"])
def test_flashinfer_gets_heads_of_64_both_ways(draft: str, tool: ModuleType, tmp_path: Path) -> None:
    for way in ("plugin", "stock"):
        wide, target, prompts = tool._inputs(tool.Case(draft, way, "fa3", "flashinfer"), tmp_path)
        assert (tool.api.look(str(wide)).spec.head_dim, json.loads((target / "config.json").read_text())["head_dim"]) == (64, 64)
        plain, *_, same = tool._inputs(tool.Case(draft, way, "fa3", "triton"), tmp_path)
        assert (tool.api.look(str(plain)).spec.head_dim, same) == (32, prompts)
        assert tool._inputs(tool.Case(draft, way, "fa3", "flashinfer"), tmp_path) == (wide, target, prompts), "made once"
    assert json.loads((wide / "config.json").read_text())["architectures"] == ["Qwen3DSparkModel"]


@pytest.mark.engine
def test_mt_bench_runs_whole_over_the_long_pair(tool: ModuleType, tmp_path: Path) -> None:
    draft, target, prompts = tool._inputs(tool.Case("tiny-sliding-causal", "plugin", "fa3", "fa3", mt_bench=True), tmp_path)
    assert len(prompts.read_text().splitlines()) == 160
    assert json.loads((target / "config.json").read_text())["max_position_embeddings"] == 4096
    assert draft.parent == target.parent
    wide, target, same = tool._inputs(tool.Case("tiny-sliding-causal", "plugin", "flashinfer", "flashinfer", mt_bench=True), tmp_path)
    config = json.loads((target / "config.json").read_text())
    assert (config["head_dim"], config["max_position_embeddings"], wide.parent, same) == (64, 4096, target.parent, prompts)
