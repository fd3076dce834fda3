"""Claims about servers from made-up answers: each one holds when it should and fails when it should."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speculators_convert import api
from speculators_convert.errors import SmokeError, SourceError, UsageError
from speculators_convert.report.smoke_html import smoke_html
from speculators_convert.report.smoke_text import smoke_lines
from speculators_convert.results.smoke import ModeResult, Nodes, Prompt, ServerOptions, ServerRecord, SmokeConfig, SmokeOptions, SmokeResult
from speculators_convert.serving.client import Answer
from speculators_convert.serving.config import ServerConfig
from speculators_convert.smoke import pair, proof
from speculators_convert.smoke.compare import Drafted
from speculators_convert.smoke.sglang import backend, claims, fleet, plan
from speculators_convert.smoke.sglang.ask import Rows
from speculators_convert.smoke.sglang.outputs import counts, drafted
from speculators_convert.smoke.sglang.store import Store
from speculators_convert.sources import LocalSource

ROOT = Path(__file__).parents[2]
TRAINED = ROOT / "fixtures/trained"
PROMPTS = tuple(Prompt(input_ids=(1, 2, 3)) for _ in range(8))
SERVER = ServerConfig(name="drafted-eager-tp1", role="drafted", target="t", draft="d", attention_backend="triton")


def answer(tokens: tuple[int, ...] = (5, 6, 7), histogram: tuple[int, ...] = (1, 1)) -> Answer:
    accepted = sum(count * steps for count, steps in enumerate(histogram))
    return Answer(request="r", output_ids=tokens, prompt_tokens=3, finish="length", verify_steps=sum(histogram), accepted=accepted, drafted=6 * sum(histogram), histogram=histogram)


def rows(*answers: Answer, name: str = SERVER.name, **more: object) -> Rows:
    record = ServerRecord(name=name, role="drafted", command=(), environment={}, start_seconds=1, asked_seconds=1, log="logs/x.log")
    return Rows(record=record, greedy=answers, batched=answers, **more)


def config(**more: object) -> SmokeConfig:
    return SmokeConfig(**{"draft": "d", "target": "t", "engine": "sglang", "device": "cuda", **more})


def test_counts_come_from_the_histogram() -> None:
    assert counts(answer(histogram=(2, 0, 1))) == (0, 0, 2)


def test_counters_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(SmokeError, match="contradict"):
        counts(answer().model_copy(update={"accepted": 5}))


def test_acceptance_by_position_follows_the_counts() -> None:
    run = drafted(SERVER, 3, [answer(histogram=(1, 2, 1))])
    result = run.against([(5, 6, 7)], 1.0)
    assert (result.verify_steps, result.accepted_tokens, result.acceptance_length) == (4, 4, 2.0)
    assert result.acceptance_by_position == (0.75, 0.25, 0.0)


@pytest.mark.parametrize(("left", "holds"), [(((5, 6, 7),), True), (((5, 6),), False), (((5, 9, 7),), False), (((),), False)])
def test_same_tokens_compares_whole_outputs(left: tuple[tuple[int, ...], ...], *, holds: bool) -> None:
    assert claims.same_tokens("x", left, [(5, 6, 7)]).holds is holds


def test_same_length_fails_beyond_margin_and_noise() -> None:
    good = drafted(SERVER, 6, [answer(histogram=(4, 2, 2))] * 8).against([(5, 6, 7)] * 8, 1.0)
    bad = drafted(SERVER, 6, [answer(histogram=(6, 2))] * 8).against([(5, 6, 7)] * 8, 1.0)
    assert claims.same_length("x", "the same", good, good).holds
    assert not claims.same_length("x", "the same", bad, good).holds


def run_of(*accepted: tuple[int, ...]) -> Drafted:
    """A run of the reference engine with these accepted counts, in the order of the steps."""
    return Drafted("eager", 1, 0.0, "bfloat16", 6, tuple(tuple(range(1 + sum(counts) + len(counts))) for counts in accepted), accepted, 1.0)


def test_a_cut_run_ends_with_the_step_that_reaches_the_limit() -> None:
    """One token comes from the prompt's pass; each step brings one more than it accepts."""
    run = run_of((2, 0, 6, 1), (3, 3))
    assert run.cut((1, 9)).accepted == ((), (3, 3))
    assert run.cut((4, 2)).accepted == ((2,), (3,))
    assert run.cut((5, 5)).accepted == ((2, 0), (3,))
    assert run.cut((6, 6)).accepted == ((2, 0, 6), (3, 3))
    assert [len(tokens) for tokens in run.cut((6, 6)).tokens] == [6, 6]


def served(run: Drafted) -> ModeResult:
    return run.against(run.tokens, 0.0)


def test_shorter_outputs_at_once_are_no_loss_of_acceptance() -> None:
    """Drafts that are accepted late in an output only: the requests that end early have less, and nothing is wrong with the server."""
    late, limits = run_of(*[(0,) * 8 + (6,) * 8] * 8), (64, 48, 32, 16) * 2
    together, single = served(late.cut(limits)), served(late)
    assert single.acceptance_length - together.acceptance_length > 0.5
    found = claims.same_at_once("x", together, single, limits, late)
    assert found.holds
    assert found.measured == "3.235, difference +0.000 [+0.000, +0.000] beside -0.765 for the shorter outputs"


def test_a_loss_at_once_is_seen_with_and_without_the_reference_engine() -> None:
    """As measured with the bonus draft on FA3 (stock SGLang 0.5.23, one H200): 2.55 tokens a step alone, 2.03 at eight."""
    good, worse, limits = run_of(*[(2, 1, 2, 1) * 10] * 8), run_of(*[(1, 1, 1, 1) * 13] * 8), (64, 56, 48, 40) * 2
    for engine in (good, None):
        assert claims.same_at_once("x", served(good.cut(limits)), served(good), limits, engine).holds
        assert not claims.same_at_once("x", served(worse.cut(limits)), served(good), limits, engine).holds


def test_without_the_reference_engine_whole_outputs_are_compared() -> None:
    late, limits = run_of(*[(0,) * 8 + (6,) * 8] * 8), (64, 48, 32, 16) * 2
    found = claims.same_at_once("x", served(late.cut(limits)), served(late), limits, None)
    assert found.holds
    assert found.measured.endswith("difference +0.000 [+0.000, +0.000] over the 2 prompts with whole outputs")


def test_same_positions_names_the_worst_position() -> None:
    good = drafted(SERVER, 2, [answer(histogram=(20, 40, 40))] * 8).against([(5, 6, 7)] * 8, 1.0)
    bad = drafted(SERVER, 2, [answer(histogram=(20, 80))] * 8).against([(5, 6, 7)] * 8, 1.0)
    found = claims.same_positions("x", "the same", bad, good)
    assert not found.holds
    assert found.measured.startswith("position 2")


def test_control_needs_proposals_without_acceptance_and_equal_tokens() -> None:
    null = answer(histogram=(3,))
    name = plan.server_name(plan.NULL, "eager", 1, deterministic=True)
    other = plan.control_name(config(), "eager")
    good = list(claims.control(config(), {name: rows(null, name=name), other: rows(answer(), name=other)}))
    assert len(good) == 4
    assert all(item.holds for item in good)
    accepted = list(claims.control(config(), {name: rows(answer(), name=name), other: rows(answer(), name=other)}))
    assert [item.holds for item in accepted] == [False, True, True, True]
    parted = list(claims.control(config(), {name: rows(null, name=name), other: rows(answer((5, 6, 8)), name=other)}))
    assert [item.holds for item in parted] == [True, False, False, True]


def test_flush_abort_and_image() -> None:
    good = rows(answer(), answer(), flushed=(answer(),), abort_finish="abort", after_abort=(answer(),), image_answer="a duck")
    assert [item.holds for item in claims.stays(good, SERVER)] == [True] * 4
    bad = rows(answer(), answer(), flushed=(answer((5, 9, 9)),), abort_finish="length", after_abort=(answer((1,)),), image_answer="")
    assert [item.holds for item in claims.stays(bad, SERVER)] == [False] * 4


def test_window_must_be_passed() -> None:
    run = drafted(SERVER, 6, [answer((5,) * 20)])
    assert [item.holds for item in claims.window(run, [(1,) * 10], [16])] == [True]
    assert [item.holds for item in claims.window(run, [(1,) * 10], [64])] == [False]
    assert list(claims.window(run, [(1,) * 10], [])) == []


def names(**more: object) -> list[str]:
    return [server.name for server in plan.servers(config(**more), plan.Folders("t", "d", "n"), 6, PROMPTS)]


def test_plan_of_two_modes_has_the_control_for_each() -> None:
    assert names(modes=("eager", "graph")) == [
        "drafted-eager-tp1", "drafted-graph-tp1", "plain-eager-tp1", "drafted-eager-tp1-deterministic", "null-draft-eager-tp1-deterministic",
        "drafted-graph-tp1-deterministic", "null-draft-graph-tp1-deterministic",
    ]  # fmt: skip


def test_plan_of_two_ranks_has_one_rank_beside_it() -> None:
    assert names(tp=2)[:3] == ["drafted-eager-tp2", "drafted-eager-tp1", "plain-eager-tp2"]


def test_servers_that_wait_leave_the_cores_alone_and_own_words_come_last() -> None:
    found = plan.servers(config(tp=2, servers=ServerOptions(words=("--log-level", "debug"))), plan.Folders("t", "d", "n"), 6, PROMPTS)
    assert {server.words for server in found} == {("--sleep-on-idle", "--log-level", "debug")}


def test_servers_over_machines_meet_at_ports_of_their_own() -> None:
    options = ServerOptions(nodes=Nodes(count=2, rank=1, address="host:4000"))
    found = plan.servers(config(tp=2, servers=options), plan.Folders("t", "d", None), 6, PROMPTS)
    assert [(server.name, server.nodes and server.nodes.address) for server in found] == [
        ("drafted-eager-tp2", "host:4001"), ("drafted-eager-tp1", None), ("plain-eager-tp2", "host:4003"),
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["--model-path=/other", "--speculative-draft-model-path", "--load-format=dummy", "--json-model", "--device"])
def test_words_that_would_run_something_else_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="the run's own"):
        backend._demand(config(servers=ServerOptions(words=(word,))))


@pytest.mark.parametrize(("change", "match"), [({"dtype": "float16"}, "tolerance"), ({"modes": ("lazy",)}, "no such mode"), ({"device": "cpu", "modes": ("graph",)}, "no graph")])
def test_what_cannot_be_judged_is_refused_before_a_server_starts(change: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        backend._demand(config(**change))


def test_an_image_that_is_none_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"1")
    for name, error in (("x.bin", SmokeError), ("missing.png", SourceError)):
        with pytest.raises(error):
            backend._demand(config(servers=ServerOptions(image=str(tmp_path / name))))


def test_requests_at_once_are_no_more_than_prompts() -> None:
    assert backend._with_company(config(), 5).servers.concurrency == 5
    with pytest.raises(UsageError, match="beside others"):
        backend._with_company(config(), 1)


def test_rows_are_found_wherever_the_server_ran_and_not_beside_other_versions(tmp_path: Path) -> None:
    here, there = SERVER, SERVER.model_copy(update={"gpus": (1,)})
    store, other = Store(tmp_path, ("a", "b"), {"sglang": "0.5.23"}), Store(tmp_path, ("a", "b"), {"sglang": "0.5.24"})
    found = rows(answer(), answer())
    store.write(there, store.key(there, config(), PROMPTS), found)
    assert store.read(here, store.key(here, config(), PROMPTS)) == found
    assert other.read(here, other.key(here, config(), PROMPTS)) is None
    assert store.read(here, store.key(here, config(max_new_tokens=8), PROMPTS)) is None
    (tmp_path / "rows" / f"{here.name}.json").write_text("{")
    assert store.read(here, store.key(here, config(), PROMPTS)) is None


def test_ordinary_decoding_is_the_same_beside_any_draft_of_the_target(tmp_path: Path) -> None:
    one, other = Store(tmp_path, ("a", "target"), {}), Store(tmp_path, ("b", "target"), {})
    plain = SERVER.model_copy(update={"role": "plain", "draft": None})
    assert one.key(plain, config(), PROMPTS) == other.key(plain, config(), PROMPTS) != Store(tmp_path, ("a", "c"), {}).key(plain, config(), PROMPTS)
    drafted = SERVER.model_copy(update={"draft": "somewhere"})
    assert one.key(drafted, config(), PROMPTS) != other.key(drafted, config(), PROMPTS)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program named nvidia-smi that lists two devices, the second one half taken."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, X, 1, 9.0, 100000, 100000, GPU-a'\necho '1, X, 1, 9.0, 100000, 50000, GPU-b'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_servers_of_one_rank_take_turns_on_the_gpus_and_wider_ones_see_all() -> None:
    places = fleet.Places(config(), 2)
    with places.taken(SERVER) as first, places.taken(SERVER) as second:
        assert {first.gpus, second.gpus} == {(0,), (1,)}
        with places.taken(SERVER.model_copy(update={"tp": 2})) as wide:
            assert wide.gpus is None
    with places.taken(SERVER) as third:
        assert third.gpus in {(0,), (1,)}


@pytest.mark.usefixtures("two_gpus")
def test_servers_at_once_are_bounded_by_the_fuller_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1000)
    need = fleet._need_bytes(SERVER)
    each = int(fleet.USABLE_SHARE * 50_000 * 1024**2 / need)
    assert fleet.at_once([SERVER] * 100, config()) == 2 * each
    assert fleet.at_once([SERVER] * 3, config()) == 3
    assert fleet.at_once([SERVER] * 100, config(servers=ServerOptions(parallel=5))) == 5


def test_pool_holds_the_longest_requests_together() -> None:
    long = (*PROMPTS, Prompt(input_ids=(1,) * 3000))
    assert plan.pool_tokens(6, long, 64, 8) >= 8 * (3000 + 64)
    assert plan.pool_tokens(6, PROMPTS, 64, 8) == plan.MIN_POOL_TOKENS


@pytest.mark.parametrize(
    ("engine", "device", "stated", "modes"),
    [
        ("sglang", "cuda", None, ("eager", "graph")),
        ("sglang", "cpu", None, ("eager",)),
        ("reference", "cuda", None, ("eager",)),
        ("sglang", "cuda", ("graph",), ("graph",)),
    ],
)
def test_sglang_on_cuda_is_proven_eager_and_captured_unless_stated(engine: str, device: str, stated: tuple[str, ...] | None, modes: tuple[str, ...]) -> None:
    spec, source = api.look(str(pair.DRAFT)).spec, LocalSource(pair.DRAFT)
    assert proof.configure(spec, source, pair.TARGET, SmokeOptions(engine=engine, device=device, modes=stated)).modes == modes


def attention(draft: Path, target: Path, **names: str) -> dict[str, str]:
    return backend._attention(config(servers=ServerOptions(**names)), api.look(str(draft)).spec, target)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("option", "role"), [("attention_backend", "target"), ("draft_attention_backend", "draft")])
def test_a_back_end_without_kernels_for_the_heads_is_refused_before_a_server_starts(option: str, role: str) -> None:
    with pytest.raises(UsageError, match=f"cannot serve the {role}") as caught:
        attention(pair.DRAFT, pair.TARGET, **{option: "flashinfer"})
    assert (caught.value.where, caught.value.measured) == ("--" + option.replace("_", "-"), "flashinfer on sm_90 with heads of 32")


@pytest.mark.usefixtures("two_gpus")
def test_a_back_end_that_serves_worse_is_let_through_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = TRAINED / "tiny-bonus-reduced-vanilla", TRAINED / "tiny-target"
    monkeypatch.setenv("SGLANG_PLUGINS", "speculators_dspark")
    assert attention(draft, target, attention_backend="fa3", draft_attention_backend="fa3") == {}
    monkeypatch.setenv("SGLANG_PLUGINS", "none")
    noted = attention(draft, target, attention_backend="fa3", draft_attention_backend="fa3")
    assert noted["draft attention"].startswith("fa3: it counts gamma rows for a draft that has gamma + 1")
    result = SmokeResult.model_validate_json((ROOT / "schemas/examples/smoke.json").read_text(encoding="utf-8"))
    result = result.model_copy(update={"environment": {**result.environment, **noted}})
    assert f"        draft attention: {noted['draft attention']}" in list(smoke_lines(result))
    assert "it counts gamma rows for a draft that has gamma + 1" in smoke_html(result)


@pytest.mark.usefixtures("two_gpus")
def test_ragged_verification_is_a_matter_of_captured_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target, chosen = TRAINED / "tiny-anchor-full-vanilla", TRAINED / "tiny-target", ServerOptions(attention_backend="triton")
    spec = api.look(str(draft)).spec
    assert backend._attention(config(modes=("graph",), servers=chosen), spec, target) == {}
    monkeypatch.setenv("SGLANG_RAGGED_VERIFY_MODE", "compact")
    assert backend._attention(config(modes=("eager",), servers=chosen), spec, target) == {}
    assert "no graph for ragged verification" in backend._attention(config(modes=("eager", "graph"), servers=chosen), spec, target)["target attention"]


@pytest.mark.parametrize(
    ("options", "sglang", "device", "expected"),
    [
        (SmokeOptions(), True, "cuda", ("sglang", "SGLang is installed and there is a CUDA device")),
        (SmokeOptions(), True, "cpu", ("reference", "SGLang is installed, but no CUDA device is used")),
        (SmokeOptions(device="cpu"), True, "cuda", ("reference", "SGLang is installed, but no CUDA device is used")),
        (SmokeOptions(), False, "cuda", ("reference", "SGLang is not installed")),
        (SmokeOptions(engine="reference"), True, "cuda", ("reference", "stated")),
        (SmokeOptions(engine="sglang", device="cpu"), False, "cpu", ("sglang", "stated")),
    ],
)
def test_the_engine_is_sglang_where_it_and_a_gpu_are(options: SmokeOptions, device: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch, *, sglang: bool) -> None:
    monkeypatch.setattr(proof, "find_spec", lambda name: object() if sglang and name == "sglang" else None)
    monkeypatch.setattr(proof, "_device", lambda: device)
    assert proof.pick_engine(options) == expected


@pytest.mark.parametrize(("measured", "holds"), [(2.04, True), (2.06, False), (1.94, False)])
def test_an_expected_length_is_asked_of_greedy_requests_one_at_a_time(measured: float, *, holds: bool) -> None:
    """Sampled requests accept less and those that run together are shorter, so that nobody states their length."""
    greedy = drafted(SERVER, 6, [answer()]).against([(5, 6, 7)], 1.0)
    modes = tuple(greedy.model_copy(update={"acceptance_length": measured, **more}) for more in ({}, {"concurrency": 8}, {"temperature": 1.0, "concurrency": 8}))
    found = [item for item in proof._bounds(modes, config(expect=2.0)) if item.expected == "2.0 +- 0.05"]
    assert [(item.name, item.holds) for item in found] == [("eager tp 1: acceptance length is the expected one", holds)]


def test_a_sliding_draft_is_asked_about_a_context_past_its_window() -> None:
    """A prompt that goes past it stands for itself; else the prompts strung together make one of twice the window, where the target has room."""
    spec, target = api.look(str(TRAINED / "tiny-sliding-causal")).spec, TRAINED / "tiny-target"
    window = spec.sliding_window or 0
    short, long = Prompt(input_ids=tuple(range(3, 10))), Prompt(input_ids=tuple(range(3, 4 + window)))
    asked = backend._with_long_context((short, short), spec, target, config())
    assert asked[:2] == (short, short)
    assert asked[2].input_ids == (short.input_ids * window)[: 2 * window]
    assert backend._with_long_context((short, long), spec, target, config()) == (short, long)
    assert backend._with_long_context((short, short), spec, target, config(max_new_tokens=510 - window)) == (short, short), "no room for it"
    full = api.look(str(TRAINED / "tiny-anchor-full-vanilla")).spec
    assert backend._with_long_context((short, short), full, target, config()) == (short, short)
