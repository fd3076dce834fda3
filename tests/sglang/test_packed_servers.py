"""Whole servers with compact verification: an image-text target and a hybrid one, images and text in one batch, requests of different lengths.

The CPU runs float32, so compact mode must give static mode's tokens one for one. Convolution states are float32 too: SGLang's
default rounds them where a step ends, and steps end at other tokens. What stock SGLang does with the same requests stands beside it.
"""

import http.client
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu.requests import cost_table, requests_of, scheduled
from sglang_harness.environment import ROOT, Site
from sglang_harness.server import NotStartedError, Server, serve

from speculators_convert import api

MULTIMODAL = ROOT / "fixtures/multimodal"
TOKENS, COUNT = 40, 4
"""Four requests at once, two of them with an image."""
FLAGS = {"vl": (), "hybrid": ("--disable-overlap-schedule", "--page-size", "1", "--max-mamba-cache-size", "16")}

STOCK_ERRORS = {"vl": r"AttributeError: 'Qwen3LLMModel' object has no attribute 'set_dflash", "hybrid": r"RuntimeError: shape '\[\d, (7, )?-1\]' is invalid"}


@dataclass(frozen=True)
class Served:
    """What one server answered: tokens and verify steps of each request, and how many steps were planned, with several requests, with different lengths."""

    tokens: list[list[int]]
    steps: int
    planned: dict[str, int]
    log: str


def _ask(server: Server) -> list[dict[str, Any]]:
    def one(request: dict[str, Any]) -> dict[str, Any]:
        sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        return server.post("/generate", {**request, "sampling_params": sampling}, timeout=200)

    with ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(one, requests_of("vl")[:COUNT]))


def _run(site: Site, folder: Path, family: str, mode: str, *, plugin: bool = True) -> Served:
    draft, name = MULTIMODAL / f"{family}-draft", f"{family}-{mode}-{'plugin' if plugin else 'stock'}"
    if not plugin:
        api.normalize(str(draft), folder / f"{name}-draft", layout="sglang")
        draft = folder / f"{name}-draft"
    flags = [*FLAGS[family], *([] if mode == "static" else ["--speculative-dspark-sps-table-path", str(cost_table(folder / f"{name}.json"))])]
    plugins = "speculators_dspark,cpu_stand_in" if plugin else "cpu_stand_in"
    options = {"SGLANG_RAGGED_VERIFY_MODE": mode, "SGLANG_DSPARK_DEBUG_CONFIDENCE_PREFIX_SCHEDULER": "1", "SGLANG_MAMBA_CONV_DTYPE": "float32"}
    with serve(site, draft, folder / f"{name}.log", plugins=plugins, target=MULTIMODAL / f"{family}-target", flags=flags, **options) as server:
        answers = _ask(server)
        log = server.log.read_text(errors="replace")
    return Served([item["output_ids"] for item in answers], sum(item["meta_info"]["spec_verify_ct"] for item in answers), scheduled(log), log)


@pytest.fixture(scope="module", params=["vl", "hybrid"])
def pair(request: pytest.FixtureRequest, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """Static and compact, side by side."""
    folder = tmp_path_factory.mktemp(request.param)
    with ThreadPoolExecutor(2) as pool:
        yield tuple(pool.map(lambda mode: _run(site, folder, request.param, mode), ("static", "compact")))


@pytest.mark.slow
def test_compact_gives_the_tokens_of_static(pair):
    static, compact = pair
    assert compact.tokens == static.tokens
    assert all(len(row) == TOKENS for row in static.tokens)
    assert len({tuple(row) for row in static.tokens}) == COUNT


@pytest.mark.slow
def test_requests_of_one_batch_verified_different_numbers_of_tokens(pair):
    static, compact = pair
    assert static.planned["steps"] == 0
    assert compact.planned["differ"] >= 5
    assert compact.steps >= static.steps


@pytest.mark.slow
def test_drafts_are_accepted(pair):
    """So that states and positions behind several accepted tokens were used."""
    for served in pair:
        assert COUNT * TOKENS / served.steps > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(STOCK_ERRORS))
def test_stock_fails_with_the_same_target_or_the_same_requests(site: Site, tmp_path: Path, family: str):
    """At start, for the dense image-text target; at the first packed batch that does not divide, for the hybrid one."""
    with pytest.raises((OSError, NotStartedError, http.client.HTTPException)):
        _run(site, tmp_path, family, "compact", plugin=False)
    log = next(tmp_path.glob("*.log")).read_text(errors="replace")
    assert re.search(STOCK_ERRORS[family], log), log[-3000:]
