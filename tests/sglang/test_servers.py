"""Whole stock servers: each trained draft as the library saved it, through the plugin, one rank and two, greedy and sampled.

The CPU runs float32, so outputs are compared token for token with the fixtures and acceptance with their table. Servers
run two at a time; each serves all its requests and ends, and the tests read what it answered.
"""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file
from sglang_harness.environment import LIBRARY, TRAINED, Site
from sglang_harness.server import Answer, Server, serve

from speculators_convert import api
from speculators_convert.layouts.native_config import native_config
from speculators_convert.model import pretty_json
from speculators_convert.sglang_plugin.preflight import read_draft

PROMPTS = [json.loads(line) for line in (TRAINED / "prompts.jsonl").read_text().splitlines()]
INPUTS = [item["input_ids"] for item in PROMPTS]
EXPECTED = [item["greedy_output_ids_float32"] for item in PROMPTS]
ACCEPTANCE = {"tiny-anchor-full-vanilla": 2.57, "tiny-bonus-reduced-vanilla": 2.55, "tiny-anchor-reduced-gated": 2.58, "tiny-sliding-causal": 2.01, "tiny-sliding-noncausal": 2.38}
"""The tables of fixtures/README.md, row "right"."""
TOLERANCE = 0.02
RECURRENT, RECURRENT_TARGET = LIBRARY / "0.9.0/rnn-bonus-reduced", LIBRARY / "target"
RECURRENT_INPUTS = [[3 + (start * 7 + step * step) % 93 for step in range(8 + start)] for start in range(10)]
"""Prompts for the recurrent head, whose pair is untrained and has 96 tokens."""


@dataclass(frozen=True)
class Served:
    """What one server answered."""

    greedy: list[Answer]
    cold: list[Answer]
    """Sampled at a temperature so low that each draw is the most likely token: the sampled path with a known answer."""
    warm: list[Answer]
    """Sampled at temperature 1."""
    log: str

    blocks: dict[str, list[dict]]
    """What was drafted, by request."""


def _ask(server: Server, record: Path, inputs: list[list[int]]) -> Served:
    greedy, cold, warm = server.generate(inputs), server.generate(inputs[:8], temperature=1e-3), server.generate(inputs[:6], temperature=1.0)
    blocks: dict[str, list[dict]] = {}
    for line in record.read_text().splitlines():
        block = json.loads(line)
        blocks.setdefault(block["request"], []).append(block)
    return Served(greedy, cold, warm, server.log.read_text(errors="replace"), blocks)


class Fleet:
    """Servers by name, two at a time."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site, self._folder = site, folder
        self._pool = ThreadPoolExecutor(2)
        self._runs: dict[str, Future[Served]] = {}

    def order(self, name: str, draft: Path, **options: object) -> None:
        self._runs[name] = self._pool.submit(self._run, name, draft, options)

    def answers(self, name: str) -> Served:
        return self._runs[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _run(self, name: str, draft: Path, options: dict) -> Served:
        record = self._folder / f"{name}.jsonl"
        with serve(self._site, draft, self._folder / f"{name}.log", DRAFT_RECORD=str(record), **options) as server:
            return _ask(server, record, RECURRENT_INPUTS if name == "recurrent" else INPUTS)


def _native_folder(draft: Path, folder: Path) -> Path:
    """A full-vocabulary draft as stock SGLang reads it: flat config, the same weights."""
    folder.mkdir()
    (folder / "config.json").write_text(pretty_json(native_config(read_draft(draft))))
    shutil.copy(draft / "model.safetensors", folder)
    return folder


def _rank_files(draft: Path, folder: Path) -> Path:
    """What `normalize --tp 2` writes."""
    api.normalize(str(draft), folder, choices=api.RewriteChoices(split=2))
    return folder


def _servers(folder: Path) -> dict[str, tuple[Path, dict[str, object]]]:
    """Draft and options of each server, by name."""
    trained: dict[str, tuple[Path, dict[str, object]]] = {f"{name} tp{tp}": (TRAINED / name, {"tp": tp}) for tp in (1, 2) for name in ACCEPTANCE}
    native = _native_folder(TRAINED / "tiny-anchor-full-vanilla", folder / "native")
    return trained | {
        "stock": (native, {"plugins": "cpu_stand_in,draft_recorder"}),
        "greedy draft": (TRAINED / "tiny-bonus-reduced-vanilla", {"SGLANG_DSPARK_USE_GREEDY_DRAFT": "1"}),
        "cap-accept": (TRAINED / "tiny-anchor-reduced-gated", {"SGLANG_RAGGED_VERIFY_MODE": "cap-accept", "plugins": ""}),
        "compact": (TRAINED / "tiny-anchor-reduced-gated", {"SGLANG_RAGGED_VERIFY_MODE": "compact"}),
        "rank files": (_rank_files(TRAINED / "tiny-bonus-reduced-vanilla", folder / "ranks"), {"tp": 2}),
        "recurrent": (RECURRENT, {"target": RECURRENT_TARGET, "tp": 2, "flags": ["--skip-tokenizer-init"]}),
    }


ASKED = {
    "test_full_vocabulary_draft_is_served_as_by_stock_without_the_plugin": ("tiny-anchor-full-vanilla tp1", "stock"),
    "test_greedy_drafts_of_the_fused_path": ("greedy draft",),
    "test_confidence_head_caps_without_changing_the_output": ("cap-accept",),
    "test_compact_mode_without_a_cost_table_is_static_mode": ("compact", "tiny-anchor-reduced-gated tp1"),
    "test_files_per_rank_are_served_as_the_whole_file": ("rank files", "tiny-bonus-reduced-vanilla tp2"),
    "test_each_rank_reads_its_rows_of_files_per_rank": ("rank files", "tiny-bonus-reduced-vanilla tp2"),
    "test_recurrent_head_of_a_bonus_draft": ("recurrent",),
    "test_runtime_geometry_stays_at_gamma": ("tiny-bonus-reduced-vanilla tp1", "tiny-anchor-reduced-gated tp1"),
}
"""Servers that a test without parameters reads; the others name theirs by draft and ranks."""


def _asked(item: pytest.Function) -> tuple[str, ...]:
    if item.originalname in ASKED:
        return ASKED[item.originalname]
    values = item.callspec.params
    return tuple(f"{values['name']} tp{tp}" for tp in ([values["tp"]] if "tp" in values else [1, 2]))


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Only the servers that the selected tests read."""
    folder = tmp_path_factory.mktemp("servers")
    fleet, servers = Fleet(site, folder), _servers(folder)
    wanted = {name for item in request.session.items if item.path == request.path for name in _asked(item)}
    for name in (name for name in servers if name in wanted):
        draft, options = servers[name]
        fleet.order(name, draft, **options)
    yield fleet
    fleet.close()


def acceptance(answers: list[Answer]) -> float:
    """Accepted plus bonus tokens over verify steps."""
    return sum(item.accepted + item.verify_steps for item in answers) / sum(item.verify_steps for item in answers)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ACCEPTANCE)
def test_greedy_output_is_the_fixtures_token_for_token(fleet: Fleet, name: str, tp: int) -> None:
    assert [item.output_ids for item in fleet.answers(f"{name} tp{tp}").greedy] == EXPECTED


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ACCEPTANCE)
def test_acceptance_is_that_of_the_table(fleet: Fleet, name: str, tp: int) -> None:
    assert acceptance(fleet.answers(f"{name} tp{tp}").greedy) == pytest.approx(ACCEPTANCE[name], abs=TOLERANCE)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ACCEPTANCE)
def test_blocks_are_those_of_the_reference_engine(fleet: Fleet, name: str, tp: int) -> None:
    """Each drafted block beside the engine's block after the same tokens."""
    from gpu.agreement import compare_blocks, engine  # noqa: PLC0415

    served, (draft, target) = fleet.answers(f"{name} tp{tp}"), engine(name, "cpu", "float32")
    counts = [compare_blocks(draft, target, [*prompt, *answer.output_ids], served.blocks[answer.request]) for prompt, answer in zip(INPUTS, served.greedy, strict=True)]
    agreed, total = (sum(column) for column in zip(*counts, strict=True))
    assert total > 20 * 64 * draft.gamma / (draft.gamma + 1)
    assert agreed / total > 0.999


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ACCEPTANCE)
def test_sampled_requests(fleet: Fleet, name: str, tp: int) -> None:
    """Cold: the sampled path gives the greedy answer. Warm: whole answers, and drafts are accepted."""
    served = fleet.answers(f"{name} tp{tp}")
    assert [item.output_ids for item in served.cold] == EXPECTED[: len(served.cold)]
    assert [len(item.output_ids) for item in served.warm] == [64] * len(served.warm)
    assert acceptance(served.warm) > 1.2


@pytest.mark.parametrize("name", ACCEPTANCE)
def test_two_ranks_accept_what_one_accepts(fleet: Fleet, name: str) -> None:
    one, two = (fleet.answers(f"{name} tp{tp}").greedy for tp in (1, 2))
    assert [(item.verify_steps, item.accepted) for item in one] == [(item.verify_steps, item.accepted) for item in two]


def test_full_vocabulary_draft_is_served_as_by_stock_without_the_plugin(fleet: Fleet) -> None:
    ours, stock = fleet.answers("tiny-anchor-full-vanilla tp1"), fleet.answers("stock")
    assert "model=Qwen3DSparkModel" in stock.log
    for mine, theirs in ((ours.greedy, stock.greedy), (ours.cold, stock.cold)):
        assert [(item.output_ids, item.verify_steps, item.accepted) for item in mine] == [(item.output_ids, item.verify_steps, item.accepted) for item in theirs]


def test_greedy_drafts_of_the_fused_path(fleet: Fleet) -> None:
    """SGLANG_DSPARK_USE_GREEDY_DRAFT keeps no step logits and takes SGLang's fused step for single requests."""
    served = fleet.answers("greedy draft")
    assert [item.output_ids for item in served.greedy] == EXPECTED
    assert acceptance(served.greedy) == pytest.approx(ACCEPTANCE["tiny-bonus-reduced-vanilla"], abs=TOLERANCE)


def test_confidence_head_caps_without_changing_the_output(fleet: Fleet) -> None:
    """With no SGLANG_PLUGINS in force, as users start: SGLang loads every plugin that it finds."""
    served = fleet.answers("cap-accept")
    assert [item.output_ids for item in served.greedy] == EXPECTED
    assert 1.2 < acceptance(served.greedy) <= ACCEPTANCE["tiny-anchor-reduced-gated"] + TOLERANCE


def test_compact_mode_without_a_cost_table_is_static_mode(fleet: Fleet) -> None:
    """Nothing is left out then: tokens, steps and accepted counts of static mode. With a table weak slots are left out, see test_packed_servers.py."""
    compact, static = fleet.answers("compact"), fleet.answers("tiny-anchor-reduced-gated tp1")
    assert "ragged-verify" in compact.log
    for mine, theirs in ((compact.greedy, static.greedy), (compact.cold, static.cold)):
        assert [(item.output_ids, item.verify_steps, item.accepted) for item in mine] == [(item.output_ids, item.verify_steps, item.accepted) for item in theirs]


def test_files_per_rank_are_served_as_the_whole_file(fleet: Fleet) -> None:
    files, whole = fleet.answers("rank files"), fleet.answers("tiny-bonus-reduced-vanilla tp2")
    for mine, theirs in ((files.greedy, whole.greedy), (files.cold, whole.cold)):
        assert [(item.output_ids, item.verify_steps, item.accepted) for item in mine] == [(item.output_ids, item.verify_steps, item.accepted) for item in theirs]


def test_each_rank_reads_its_rows_of_files_per_rank(fleet: Fleet) -> None:
    """By the plugin's own count of its reads, which `inside/test_two_ranks.py` compares with those of the system."""
    from gpu.claims import own_rows_only, rows_read  # noqa: PLC0415

    weights = load_file(TRAINED / "tiny-bonus-reduced-vanilla/model.safetensors")
    heads = ("lm_head.weight", "markov_head.markov_w2.weight")
    whole = sum(weights[name].nbytes for name in heads)
    found = rows_read(fleet.answers("rank files").log.splitlines())
    assert [(item.rank, item.first, item.stop, item.row_bytes) for item in found] == [(0, 0, 256, whole // 2), (1, 256, 512, whole // 2)]
    assert {(item.total, item.tensors, item.all_bytes) for item in found} == {(512, heads, whole)}
    assert all(item.row_bytes + item.header_bytes < whole for item in found)
    assert own_rows_only(found, ranks=2)
    assert rows_read(fleet.answers("tiny-bonus-reduced-vanilla tp2").log.splitlines()) == []


def test_recurrent_head_of_a_bonus_draft(fleet: Fleet) -> None:
    """Two ranks, 48 draft ids padded to 64: tokens, steps and each drafted block as the reference engine has them, whose state starts at the anchor."""
    from gpu.agreement import compare_blocks, engine  # noqa: PLC0415

    from speculators_convert.smoke.engine import loop  # noqa: PLC0415

    served, (draft, target) = fleet.answers("recurrent"), engine(RECURRENT, "cpu", "float32", RECURRENT_TARGET)
    runs = [loop.generate(draft, target, [prompt], loop.Limits(64))[0] for prompt in RECURRENT_INPUTS]
    assert [item.output_ids for item in served.greedy] == [run.tokens for run in runs]
    assert [item.verify_steps for item in served.greedy] == [len(run.accepted) for run in runs]
    counts = [compare_blocks(draft, target, [*prompt, *answer.output_ids], served.blocks[answer.request]) for prompt, answer in zip(RECURRENT_INPUTS, served.greedy, strict=True)]
    agreed, total = (sum(column) for column in zip(*counts, strict=True))
    assert total > 1000
    assert agreed / total > 0.999


def test_runtime_geometry_stays_at_gamma(fleet: Fleet) -> None:
    """SGLang's own start-up line: gamma drafted, gamma + 1 verified, gamma + 1 rows for the bonus anchor."""
    for name, rows, anchor in (("tiny-bonus-reduced-vanilla", 7, False), ("tiny-anchor-reduced-gated", 6, True)):
        line = next(line for line in fleet.answers(f"{name} tp1").log.splitlines() if "Initialized DSpark draft runner" in line)
        for part in ("model=SpeculatorsDSparkModel", "gamma=6", "verify_num_draft_tokens=7", f"query_token_num={rows}", f"sample_from_anchor={anchor}"):
            assert part in line
