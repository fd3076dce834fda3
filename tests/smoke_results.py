"""Smoke results for the tests of its HTML page: the real one of the examples, one that has everything, and one whose every text is hostile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speculators_convert.model import Model
from speculators_convert.results.smoke import Block, Comparison, Equivalence, Sampled, ServerRecord, SmokeResult, Split
from speculators_convert.spec import Anchor

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "schemas" / "examples" / "smoke.json"
HOSTILE = (
    "<script>window.executed = 1</script>",
    "\"><img src='x' onerror='window.executed = 1'>",
    "</style></title></svg><svg onload=window.executed=1>",
    "' onfocus=window.executed=1 autofocus tabindex=1 '",
    "javascript:window.executed=1",
    "--><iframe srcdoc='<script>parent.executed=1</script>'>",
    "abc\u202ecba\u2066\x00\x1b[2J\u200b\ud800\nline",
    "W" * 400,
)
"""Each is tried in every text of a result."""


def example() -> SmokeResult:
    """What `smoke` wrote for the trained fixtures."""
    return SmokeResult.model_validate_json(EXAMPLE.read_text(encoding="utf-8"))


def everything() -> SmokeResult:
    """The example with what only a run on servers has: more modes, splits of both kinds, sampled tokens, servers, a failed claim."""
    result = example()
    mode = result.modes[0]
    parted = [outcome.model_copy(update={"exact": False, "first_difference": at}) for outcome, at in zip(mode.outcomes[:2], (17, 3), strict=True)]
    shares = tuple(0.93**position for position in range(1, 16))
    served = {"tp": 2, "concurrency": 8, "server": "drafted-tp2", "exact": mode.total - 2, "outcomes": (*parted, *mode.outcomes[2:]), "acceptance_by_position": shares}
    splits = (
        Split(prompt=0, at=17, plain_token=104, drafted_token=99, plain_gap_steps=0.5, block_gap_steps=-1.25, verdict="tie"),
        Split(prompt=1, at=3, plain_token=None, drafted_token=7, plain_gap_steps=None, block_gap_steps=None, verdict="defect"),
    )
    compared = Equivalence(mode="ragged", tp=2, dtype="bfloat16", concurrency=8, tolerance_steps=16, exact=mode.total - 2, ties=1, defects=1, splits=splits)
    control = compared.model_copy(update={"against": "null draft", "exact": mode.total, "ties": 0, "defects": 0, "splits": ()})
    failed = Comparison(name="ragged tp 2: drafted greedy equals target-only greedy", holds=False, measured="1 defects", expected="0 defects")
    parameters = {"modes": ["eager", "ragged"], "servers": {"concurrency": 8, "control": True, "image": None, "nodes": {"address": "host:1"}}, "expect": None}
    changes = {
        "parameters": parameters,
        "modes": (mode, mode.model_copy(update={"mode": "graph"}), mode.model_copy(update={"mode": "ragged", **served}), mode.model_copy(update={"temperature": 0.7})),
        "equivalence": (*result.equivalence, compared, control),
        "sampled": (Sampled(mode="eager", tp=1, temperature=0.7, seed=5, tokens=512, p_value=0.0004, level=0.001),),
        "servers": tuple(_server(degree) for degree in (1, 2)),
        "comparisons": (*result.comparisons, failed),
        "geometry": Block(anchor=Anchor.BONUS, gamma=15, query_slots=16, facts=("gamma 15",)),
        "verdict": "fail",
        "reasons": ("ragged tp 2: drafted greedy equals target-only greedy: measured 1 defects, expected 0 defects", "last lines of the log:\nTraceback\n  ValueError"),
    }
    return result.model_copy(update=changes)


def infected(payload: str) -> SmokeResult:
    """The result that has everything, with `payload` in each of its texts, names of files and parameters too."""
    infected_result: SmokeResult = _infect(everything(), payload)
    return infected_result


def _server(degree: int) -> ServerRecord:
    return ServerRecord(
        name=f"drafted-tp{degree}", role="drafted", command=("python", "-m", "sglang.launch_server", "--model-path", "a folder/target", "--tp-size", str(degree)),
        environment={"SGLANG_PLUGINS": "speculators_dspark"}, start_seconds=48.25, asked_seconds=12.5, memory_bytes=degree * 41_230_000_000, log=f"logs/tp{degree}.log",
    )  # fmt: skip


def _infect(value: Any, payload: str) -> Any:
    if isinstance(value, Model):
        kept = {"verdict", "anchor"}
        return value.model_copy(update={name: _infect(getattr(value, name), payload) for name in type(value).model_fields if name not in kept})
    if isinstance(value, str):
        return value + payload
    if isinstance(value, dict):
        return {key + payload: _infect(item, payload) for key, item in value.items()}
    return tuple(_infect(item, payload) for item in value) if isinstance(value, (tuple, list)) else value
