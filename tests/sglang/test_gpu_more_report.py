"""The claims of `tools/gpu_plugin_more.py` over made rows: each can fail."""

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from gpu.requests import scheduled

import gpu_plugin_more as more

ROW = {"output_ids": [5, 6, 7], "verify_steps": 2, "accepted": 2, "prompt_tokens": 9}
OTHER = {**ROW, "output_ids": [5, 6, 8]}
SERVER = {
    "kind": "server", "name": "vl.compact.graph", "family": "vl", "mode": "compact", "broken": "", "errors": [], "rows": {"alone": [ROW] * 10, "together": [ROW] * 10},
    "scheduled": {"steps": 9, "several": 5, "differ": 4}, "graph_steps": 8, "eager_steps": 1,
}  # fmt: skip
STATIC = {**SERVER, "name": "vl.static.graph", "mode": "static"}
EAGER = {**SERVER, "name": "vl.compact.eager", "graph_steps": 0, "eager_steps": 9}
STOCK = {**EAGER, "name": "stock.vl.compact.eager", "broken": "RemoteDisconnected: closed", "errors": ["RuntimeError: shape"]}
FLUSH = {"kind": "flush", "name": "flush.plugin", "broken": "", "errors": [], "flushes": 50, "free_bytes": 700 << 20}
FLUSH["rounds"] = [{"size": 1 + number % 8, "tokens": [[1, 2]] * (1 + number % 8), "flushed": True} for number in range(50)]


def failing(*lines: dict) -> list[str]:
    return [claim for claim, holds, _ in more.report(list(lines)) if not holds]


def changed(line: dict, **values: object) -> dict:
    return {**copy.deepcopy(line), **values}


def test_sound_rows_hold():
    assert failing(SERVER, STATIC, EAGER, STOCK, FLUSH) == []
    assert len(more.report([SERVER, STATIC, EAGER, STOCK, FLUSH])) == 11


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (changed(SERVER, rows={"alone": [ROW] * 10, "together": [OTHER] * 10}), "eight at once give the tokens"),
        (changed(SERVER, scheduled={"steps": 9, "several": 5, "differ": 0}), "different numbers"),
        (changed(SERVER, graph_steps=0, eager_steps=9), "in graphs"),
        (changed(SERVER, broken="HTTPError: 500"), "answered"),
        (changed(EAGER, rows={"alone": [OTHER] * 10, "together": [OTHER] * 10}), "graph gives eager's tokens"),
        (changed(STATIC, rows={"alone": [OTHER] * 10, "together": [OTHER] * 10}), "the tokens of vl.static.graph"),
        (changed(STOCK, broken="", errors=[]), "stock's tokens differ"),
        (changed(FLUSH, broken="RemoteDisconnected: closed"), "no fault"),
        (changed(FLUSH, rounds=FLUSH["rounds"][:49]), "no fault"),
        (changed(FLUSH, flushes=49), "no fault"),
        (changed(FLUSH, rounds=[*FLUSH["rounds"][:-8], *({**item, "tokens": [[1, 3]] * item["size"]} for item in FLUSH["rounds"][-8:])]), "no fault"),
        ({"kind": "failed", "name": "hybrid.compact.graph", "draft": "hybrid-draft", "error": "no answer"}, "hybrid.compact.graph ran"),
    ],
)
def test_each_claim_can_fail(line, words):
    rows = {item["name"]: item for item in (SERVER, STATIC, EAGER, STOCK, FLUSH)} | {line["name"]: line}
    assert any(words in claim for claim in failing(*rows.values()))


def test_a_later_success_replaces_a_failure():
    assert failing({"kind": "failed", "name": SERVER["name"], "draft": "", "error": "x"}, SERVER) == []


def test_lengths_are_read_from_sglangs_log():
    lines = [
        "x [DSPARK-CPS] num_reqs=2 budget=5 gamma=6",
        "[DSPARK-CPS]   req=1 prefix=40 verify_len=3 sort_survival=[0.5]",
        "[DSPARK-CPS]   req=2 prefix=41 verify_len=5 sort_survival=[]",
    ]
    lines += [
        "[DSPARK-CPS] num_reqs=1 budget=2",
        "[DSPARK-CPS]   req=1 prefix=44 verify_len=2 sort_survival=[]",
        "[DSPARK-CPS] num_reqs=2",
        *["[DSPARK-CPS] req=1 verify_len=7"] * 2,
    ]
    assert scheduled("\n".join(lines)) == {"steps": 3, "several": 2, "differ": 1}
