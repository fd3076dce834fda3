"""Back ends that a run names, against the table: refused, or let through and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("requests", reason="servers are asked with requests, of the extra engine")

from bench_rows import plan_of, row
from speculators_convert import api
from speculators_convert.bench import analysis, sglang
from speculators_convert.errors import UsageError
from speculators_convert.report.bench_html import render_bench
from speculators_convert.report.bench_text import bench_lines
from speculators_convert.results.bench import BenchOptions
from speculators_convert.smoke import pair

TRAINED = Path(__file__).parents[2] / "fixtures/trained"
TARGET = TRAINED / "tiny-target"
CHOSEN = {"device": "cuda", "mode": "graph", "attention_backend": "fa3", "draft_attention_backend": "fa3"}


def test_heads_without_kernels_are_refused() -> None:
    drafts = {"drafted": api.look(str(pair.DRAFT)).spec}
    with pytest.raises(UsageError, match="cannot serve the draft") as caught:
        sglang.notes({**CHOSEN, "draft_attention_backend": "flashinfer"}, drafts, pair.TARGET, BenchOptions())
    assert (caught.value.where, caught.value.expected) == ("--draft-attention-backend", "triton")


def test_each_arm_is_judged_with_its_own_plugin_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", "speculators_dspark")
    spec, options = api.look(str(TRAINED / "tiny-bonus-reduced-vanilla")).spec, BenchOptions(stock=("bare",))
    drafts = {"drafted": spec, "bare": spec}
    assert sglang.notes({**CHOSEN, "draft_attention_backend": "triton"}, drafts, TARGET, options) == {}
    noted = sglang.notes(CHOSEN, drafts, TARGET, options)
    assert list(noted) == ["draft attention, bare"]
    assert noted["draft attention, bare"].startswith("fa3: it counts gamma rows")
    plan = plan_of(repeats=1).model_copy(update={"settings": {**CHOSEN, **noted}})
    report = analysis.report(plan, {step.index: [row()] for step in plan.steps}, ["" for _ in plan.steps])
    lines = list(bench_lines(report))
    assert "engine    reference  device cuda  mode graph  attention_backend fa3  draft_attention_backend fa3" in lines
    assert f"          draft attention, bare: {noted['draft attention, bare']}" in lines
    assert "it counts gamma rows for a draft that has gamma + 1" in render_bench(report)
