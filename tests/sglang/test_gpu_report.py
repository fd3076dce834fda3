"""What `tools/gpu_plugin.py` runs, and the claims that it draws from raw rows, right and wrong ones. Needs no SGLang and no GPU."""

import importlib.util
import json
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from gpu import claims, plan
from gpu.agreement import engine
from gpu.prompts import prompts
from gpu.runs import agreement, kept_line, serve_slice
from sglang_harness.environment import ROOT, TRAINED
from sglang_harness.server import NotStartedError, launch

from speculators_convert.smoke.engine import decode, loop
from speculators_convert.smoke.engine.model import Draft

DRAFT = plan.ANCHOR_FULL


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("gpu_plugin", ROOT / "tools/gpu_plugin.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["gpu_plugin"] = module
    specification.loader.exec_module(module)
    return module


def server(name: str, tokens: int = 1, accepted: int = 30, together: int | None = None, target: str = "tiny-target") -> dict:
    row = {"request": "a", "output_ids": [tokens] * 64, "verify_steps": 20, "accepted": accepted}
    batched = {**row, "accepted": accepted if together is None else together}
    rows = {"greedy": [row] * 80, "greedy batched": [batched] * 80}
    blocks = [{"request": "a", "context": 48, "anchor": 1, "drafted": [tokens] * 6}]
    draft, words = name.partition(".")[0], ["--model-path", str(TRAINED / target), "--tp-size", "2" if ".tp2" in name else "1"]
    return {"kind": "server", "name": name, "draft": draft, "plugins": "speculators_dspark", "command": words, "rows": rows, "blocks": blocks}


def reference(counts: list[int], draft: str = DRAFT) -> dict:
    return {"kind": "reference", "name": f"{draft}.reference", "draft": draft, "accepted": [counts] * 80}


def verdicts(lines: list[dict]) -> dict[str, bool]:
    return {claim: holds for claim, holds, _ in claims.report(lines)}


def test_equal_runs_hold() -> None:
    found = verdicts([server(f"{DRAFT}.eager"), server(f"{DRAFT}.graph"), reference([1, 2])])
    assert found == {
        f"{DRAFT}.eager: acceptance does not depend on concurrency": True,
        f"{DRAFT}.eager: acceptance is the reference engine's": True,
        f"{DRAFT}.graph: graph gives eager's tokens": True,
        f"{DRAFT}.graph: acceptance does not depend on concurrency": True,
        f"{DRAFT}.graph: acceptance is the reference engine's": True,
    }


def test_other_tokens_other_acceptance_and_failures_do_not_hold() -> None:
    lines = [server(f"{DRAFT}.eager"), server(f"{DRAFT}.graph", tokens=2), reference([2, 2]), {"kind": "failed", "name": "x", "draft": DRAFT, "error": "why"}]
    found = verdicts(lines)
    assert found["x ran"] is False
    assert found[f"{DRAFT}.graph: graph gives eager's tokens"] is False
    assert found[f"{DRAFT}.graph: acceptance is the reference engine's"] is False


def test_a_slice_counts_as_it_ran_last() -> None:
    failure = {"kind": "failed", "name": f"{DRAFT}.eager", "draft": DRAFT, "error": "why"}
    assert f"{DRAFT}.eager ran" not in verdicts([failure, server(f"{DRAFT}.eager")])
    assert verdicts([server(f"{DRAFT}.eager"), failure]) == {f"{DRAFT}.eager ran": False}


def test_agreement_has_a_floor() -> None:
    rows = {"kind": "agreement", "name": "a", "draft": DRAFT}
    assert list(verdicts([{**rows, "rows": [[98, 100], [97, 100]]}]).values()) == [True]
    assert list(verdicts([{**rows, "rows": [[96, 100], [97, 100]]}]).values()) == [False]


def test_sampled_requests_must_end_and_accept_drafts() -> None:
    for count, length, holds in ((30, 64, True), (30, 63, False), (2, 64, False)):
        line = server(f"{DRAFT}.eager")
        line["rows"]["sampled"] = [{"request": "b", "output_ids": [1] * length, "verify_steps": 20, "accepted": count}] * 20
        assert verdicts([line])[f"{DRAFT}.eager: sampled requests end and accept drafts"] is holds


def test_width_defect_before_and_after() -> None:
    """Stock must show the loss, and the plugin must give it back; either alone proves nothing."""
    gives_back = f"{plan.BONUS} on FA3: the plugin gives back what stock loses"
    loses = f"{plan.STOCK_FLASH}: stock loses acceptance at concurrency 8, the defect that the plugin mends"
    found = verdicts([server(plan.STOCK_FLASH, accepted=34, together=20), server(plan.FLASH, accepted=34)])
    assert found[loses] is found[gives_back] is found[f"{plan.FLASH}: acceptance does not depend on concurrency"] is True
    found = verdicts([server(plan.STOCK_FLASH, accepted=34, together=20), server(plan.FLASH, accepted=34, together=20)])
    assert found[gives_back] is found[f"{plan.FLASH}: acceptance does not depend on concurrency"] is False
    found = verdicts([server(plan.STOCK_FLASH, accepted=34), server(plan.FLASH, accepted=34)])
    assert found[loses] is found[gives_back] is False


def test_stock_is_compared_by_tokens_counts_and_blocks() -> None:
    stock, ours = server(plan.STOCK), server(f"{DRAFT}.graph")
    names = [f"full vocabulary: the plugin changes nothing, {what}" for what in ("tokens", "steps and accepted counts", "drafted blocks")]
    assert [verdicts([stock, ours])[name] for name in names] == [True, True, True]
    assert [verdicts([stock, server(f"{DRAFT}.graph", tokens=2)])[name] for name in names] == [False, True, False]
    assert [verdicts([stock, server(f"{DRAFT}.graph", accepted=29)])[name] for name in names] == [True, False, True]


def test_two_ranks_keep_acceptance_and_rank_files_keep_tokens() -> None:
    one, two, split = f"{plan.BONUS}.graph", f"{plan.BONUS}.graph.tp2", SPLIT
    found = verdicts([server(one), server(two, tokens=2), server(split, tokens=2)])
    assert found[f"{two}: acceptance is that of one rank"] is found[f"{split}: files per rank give the whole file's tokens"] is True
    found = verdicts([server(one), server(two, accepted=20), server(split, tokens=2)])
    assert found[f"{two}: acceptance is that of one rank"] is found[f"{split}: files per rank give the whole file's tokens"] is False


SPLIT = f"{plan.BONUS}.graph.tp2.split"
ROWS_READ = (
    "[2026-11-30 10:00:00 TP1] DSpark rank 1 read rows 256 to 512 of 512 from rank files, of lm_head.weight and w2: 80 bytes of 160, and 9 bytes of headers",
    "[2026-11-30 10:00:01 TP0] DSpark rank 0 read rows 0 to 256 of 512 from rank files, of lm_head.weight and w2: 80 bytes of 160, and 9 bytes of headers",
)
"""What two ranks log, in any order."""


RIGHT = {"right": ROWS_READ, "among other lines": ("DSpark of another kind", *ROWS_READ, "hook(s)")}
WRONG = {
    "nothing said": (),
    "one rank": ROWS_READ[:1],
    "a rank twice": (*ROWS_READ, ROWS_READ[0]),
    "a row of both": (ROWS_READ[0], ROWS_READ[1].replace("0 to 256", "0 to 257")),
    "all rows on one": (ROWS_READ[0], ROWS_READ[1].replace("0 to 256", "0 to 512")),
    "first row on none": (ROWS_READ[0], ROWS_READ[1].replace("0 to 256", "1 to 256")),
    "last rows on none": (ROWS_READ[0].replace("to 512", "to 500"), ROWS_READ[1]),
    "whole files": tuple(line.replace("80 bytes", "160 bytes") for line in ROWS_READ),
    "a byte more": (ROWS_READ[0], ROWS_READ[1].replace("80 bytes", "81 bytes")),
    "rows as headers": tuple(line.replace(" 9 bytes", " 80 bytes") for line in ROWS_READ),
    "other tensors": (ROWS_READ[0], ROWS_READ[1].replace(" and w2", "")),
}


@pytest.mark.parametrize("case", [*RIGHT, *WRONG])
def test_ranks_of_a_split_draft_must_say_that_they_read_their_rows_only(case: str) -> None:
    line = {**server(SPLIT), "log": list((RIGHT | WRONG)[case])}
    assert verdicts([line])[f"{SPLIT}: each rank reads its rows only"] is (case in RIGHT)


def test_a_split_draft_without_a_log_does_not_hold_and_others_need_none() -> None:
    assert verdicts([server(SPLIT)])[f"{SPLIT}: each rank reads its rows only"] is False
    assert not [claim for claim in verdicts([server(f"{plan.BONUS}.graph"), server(f"{plan.BONUS}.graph.tp2")]) if "its rows only" in claim]


def test_what_ranks_say_is_kept_in_the_row() -> None:
    assert [line for line in (*ROWS_READ, "other") if kept_line(line)] == list(ROWS_READ)


def test_rounded_targets_are_compared_with_the_exact_one() -> None:
    name = f"{plan.GATED}.graph.packed"
    for accepted, holds in ((28, True), (5, False)):
        found = verdicts([server(f"{plan.GATED}.graph"), server(name, accepted=accepted, target="x/target"), reference([1, 2], plan.GATED)])
        assert found[f"{name}: the draft still fits the rounded target"] is holds
        assert f"{name}: acceptance is the reference engine's" not in found


def test_paired_interval_sees_a_shift_that_unpaired_spread_would_hide() -> None:
    left = [1 + index % 10 for index in range(80)]
    low, high = claims.paired_interval(left, [value - 0.1 for value in left])
    assert 0 < low <= high < 0.2


def test_slices_cover_each_fixture_eager_and_graph() -> None:
    names = [item.name for item in plan.slices(2)]
    assert {f"{draft}.{mode}" for draft in plan.FIXTURES for mode in ("eager", "graph")} <= set(names)
    assert {plan.STOCK, plan.STOCK_FLASH, plan.FLASH, f"{plan.BONUS}.graph.fp8", f"{plan.GATED}.graph.packed", f"{plan.BONUS}.graph.tp2.split"} <= set(names)
    assert len(set(names)) == len(names)
    assert [item.name for item in plan.slices()] == [name for name in names if ".tp2" not in name]
    assert len({tuple(prompt) for prompt in prompts()}) == len(prompts()) == 124


def test_two_ranks_see_two_gpus_and_others_the_emptier_one(tool: ModuleType) -> None:
    host = tool.Host(2, threading.Semaphore(), time.monotonic() + 10)
    with host.on_gpus(1) as first, host.on_gpus(1) as second:
        assert (first, second) == ((0,), (1,))
        with host.on_gpus(2) as both:
            assert both == (0, 1)
    with host.on_gpus(1) as again:
        assert again == (0,)
    assert plan.environ(plan.slices(2)[1], Path("site"), (0, 1))["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_server_that_hangs_is_killed_at_its_deadline(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(NotStartedError), launch([sys.executable, "-c", "import time; time.sleep(60)"], 1, {}, tmp_path / "log", start_seconds=50, seconds=1):
        pass
    assert time.monotonic() - began < 20


def test_a_server_that_cannot_start_is_a_row(tmp_path: Path) -> None:
    """This Python has no SGLang: the server ends at once, and its last words are the row's."""
    ready: list[int] = []
    row = serve_slice(plan.slices()[1], tmp_path / "slice", tmp_path, gpus=(0,), seconds=60, ready=lambda: ready.append(1), asking=nullcontext())
    assert (row["kind"], row["name"], ready) == ("failed", plan.slices()[1].name, [])
    assert "sglang" in row["error"]


def test_the_reference_engine_runs_in_a_process_of_its_own(tool: ModuleType, tmp_path: Path) -> None:
    """A result by name, or the reason why there is none."""
    options = tool.Options(tmp_path / "rows.jsonl", 100, "", 1, 1, 1, "c", "cpu", "float32")
    row = tool._engine("no-such-draft.reference", options, tool.Host(1, threading.Semaphore(), time.monotonic() + 100))
    assert (row["kind"], row["name"]) == ("failed", "no-such-draft.reference")
    assert "no-such-draft" in row["error"]
    assert tool._engine(f"{DRAFT}.reference", options, tool.Host(1, threading.Semaphore(), time.monotonic())) is None


def test_the_engine_agrees_with_blocks_of_its_own_and_not_with_others() -> None:
    draft, target = engine(DRAFT, "cpu", "float32")
    prompt, blocks = prompts()[0], list[dict]()

    def propose(draft: Draft, state: decode.State, extent: int) -> decode.Proposal:
        proposal, (anchor, position) = decode.propose(draft, state, extent), decode.anchors(state)
        blocks.append({"request": "a", "context": int(position), "anchor": int(anchor), "drafted": proposal.tokens[0].tolist()})
        return proposal

    tokens = loop.generate(draft, target, [prompt], loop.Limits(16), steps=loop.Steps(propose=propose))[0].tokens
    line = {"rows": {"greedy": [{"request": "a", "output_ids": tokens}]}, "blocks": blocks}
    agreed, total = agreement(line, draft, target, [prompt])[0]
    assert agreed == total >= 2 * draft.gamma
    blocks[0]["drafted"] = [token + 1 for token in blocks[0]["drafted"]]
    assert agreement(line, draft, target, [prompt])[0] == (total - draft.gamma, total)


def test_report_of_a_file(tool: ModuleType, tmp_path: Path) -> None:
    """The command prints each claim and says by its exit code whether all hold."""
    for tokens, code in ((1, 0), (2, 1)):
        (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(line) for line in (server(f"{DRAFT}.eager"), server(f"{DRAFT}.graph", tokens=tokens))))
        done = subprocess.run([sys.executable, str(ROOT / "tools/gpu_plugin.py"), "--out", str(tmp_path / "rows.jsonl"), "--report"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.count("FAILS")) == (code, code)
        assert "graph gives eager's tokens" in done.stdout


def test_packed_weights_alone_need_a_kernel_compiled_beforehand() -> None:
    prepared = [item.name for item in plan.slices(2) if plan.preparation(item)]
    assert prepared == [f"{plan.GATED}.graph.packed"]
