"""Engine verdicts: the data files are sound, and each rule decides as its source says."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.detection import FIXTURES
from benchmarks.draft_editor import Draft

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.engines import Engine, engines, facts, verdicts
from speculators_convert.engines.rules import Condition
from speculators_convert.findings import EngineVerdict
from speculators_convert.formats import detect
from speculators_convert.sources import MemorySource
from speculators_convert.spec import DraftSpec, Settings


def read(base: str, *edits: tuple[Any, ...]) -> tuple[DraftSpec, Checkpoint]:
    checkpoint = collect(MemorySource(Draft.load(FIXTURES / base).apply(edits).files()))
    found = detect(checkpoint).format
    assert found is not None
    return found.read(checkpoint, Settings()).spec, checkpoint


def verdict(name: str, base: str, *edits: tuple[Any, ...], tp: tuple[int, ...] = ()) -> EngineVerdict:
    found = {f"{item.engine} {item.version}": item for item in verdicts(*read(base, *edits), "DRAFT", tp)}
    return found[name]


STOCK, PLUGIN, VLLM, LIBRARY = "SGLang 0.5.23", "SGLang 0.5.23 + plugin", "vLLM 0.33.0", "speculators 0.9.0"
FULL, REDUCED, BONUS = "library/0.9.0/vanilla-anchor-full", "library/0.9.0/vanilla-anchor-reduced", "library/0.9.0/vanilla-bonus-reduced"
NATIVE = "good/deepspec-vanilla"
OLD, OLDER, LLAMA, TRT = "SGLang 0.5.19", "SGLang 0.5.17", "llama.cpp 2026-09", "TensorRT-LLM 1.4.0rc4"
CASES = [
    (STOCK, "good/bundled-v4", (), "loads", "dspark_block_size"),
    (STOCK, "good/specforge-current", (), "needs-normalize", "markov_rank"),
    (STOCK, "good/deepspec-sglang-bonus", (), "loads", "--speculative-draft-attention-backend triton"),
    (STOCK, "good/nemotron-nvfp4", (), "unsupported", "quantization_config"),
    (OLD, BONUS, (), "needs-normalize", "d2t"),
    (OLD, NATIVE, (("put", "/rope_parameters", {"rope_theta": 1e6, "rope_type": "default", "mrope_section": [1, 1]}),), "needs-normalize", "mrope_section"),
    (OLDER, FULL, (), "needs-normalize", "speculators_model_type"),
    (OLDER, BONUS, (), "unsupported", "sample_from_anchor"),
    (OLDER, "library/0.9.0/sliding-noncausal", (), "unsupported", "sliding_window_non_causal"),
    (OLDER, NATIVE, (("set", "/architectures", ["LingDSparkModel"]),), "needs-normalize", "architectures"),
    (OLD, NATIVE, (("set", "/architectures", ["LingDSparkModel"]),), "loads", ""),
    (LLAMA, "good/gguf-dspark-reduced", (), "loads", ""),
    (LLAMA, "good/gguf-legacy-dspark", (), "unsupported", "general.architecture"),
    (LLAMA, BONUS, (), "loads", "converter"),
    (LLAMA, "library/0.9.0/gated-anchor-full", (), "unsupported", "gate_proj"),
    (LLAMA, "good/specforge-current", (), "needs-normalize", "sample_from_anchor"),
    (LLAMA, "good/nemo-glm", (), "needs-normalize", "architectures"),
    (TRT, "good/bundled-v4.1", (), "loads", "dspark_block_size"),
    (TRT, REDUCED, (), "unsupported", "d2t"),
    (TRT, "library/0.9.0/vanilla-bonus-full", (), "unsupported", "sample_from_anchor"),
    (TRT, NATIVE, (), "unsupported", "architectures"),
    (VLLM, "good/bundled-v4", (), "loads", "dspark_block_size"),
    (VLLM, "good/specforge-current", (), "needs-normalize", "markov_rank"),
    (LIBRARY, "good/bundled-v4", (), "unsupported", "dspark_block_size"),
    (LIBRARY, "good/gguf-dspark-full", (), "unsupported", "*.gguf"),
    (STOCK, FULL, (), "needs-normalize", "speculators_model_type"),
    (STOCK, REDUCED, (), "needs-normalize", "d2t"),
    (STOCK, NATIVE, (), "loads", ""),
    (STOCK, "library/0.9.0/no-markov", (), "unsupported", "markov_rank"),
    (STOCK, "library/0.9.0/taps-edge", (), "unsupported", "target_layer_ids"),
    (STOCK, NATIVE, (("delete", "/model_type"),), "needs-normalize", "model_type"),
    (STOCK, NATIVE, (("delete", "/dtype"),), "needs-normalize", "dtype"),
    (STOCK, NATIVE, (("set", "/architectures", ["Glm5_2DSparkModel"]),), "needs-normalize", "architectures"),
    (STOCK, NATIVE, (("put", "/partial_rotary_factor", 0.25),), "needs-normalize", "partial_rotary_factor"),
    (STOCK, NATIVE, (("drop", "layers.1.mlp.up_proj.weight"),), "unsupported", "layers.1.mlp.up_proj.weight"),
    (STOCK, "good/modelopt-vanilla", (), "needs-normalize", "markov_w1.weight"),
    (STOCK, "good/gguf-dspark-full", (), "unsupported", "*.gguf"),
    (PLUGIN, FULL, (), "loads", ""),
    (PLUGIN, BONUS, (), "loads", ""),
    (PLUGIN, NATIVE, (), "loads", ""),
    (PLUGIN, "good/specforge-current", (), "needs-normalize", "config.json"),
    (PLUGIN, FULL, (("add-tensor", "extra.weight", "BF16", [2]),), "unsupported", "extra.weight"),
    (VLLM, FULL, (), "loads", "name_or_path"),
    (VLLM, BONUS, (), "loads", ""),
    (VLLM, "library/0.9.0/gated-anchor-full", (), "unsupported", "gate_proj"),
    (VLLM, "library/0.9.0/rnn-bonus-full", (), "unsupported", "joint_proj"),
    (VLLM, REDUCED, (("drop", "lm_head.weight"),), "unsupported", "lm_head.weight"),
    (VLLM, "library/0.9.0/sliding-noncausal", (), "unsupported", "sliding_window_non_causal"),
    (VLLM, "library/0.9.0/mixed-causal", (), "loads", "VLLM_USE_V2_MODEL_RUNNER"),
    (VLLM, FULL, (("delete", "/sample_from_anchor"),), "needs-normalize", "sample_from_anchor"),
    (VLLM, "library/0.9.0/no-markov", (), "unsupported", "markov_rank"),
    (LIBRARY, FULL, (), "loads", ""),
    (LIBRARY, NATIVE, (), "needs-normalize", "speculators_model_type"),
    (LIBRARY, "library/0.9.0/vanilla-bonus-full", (("delete", "/sample_from_anchor"),), "needs-normalize", "sample_from_anchor"),
]


@pytest.mark.parametrize(("name", "base", "edits", "expected", "decides"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_verdict_names_what_decides(name: str, base: str, edits: tuple[Any, ...], expected: str, decides: str) -> None:
    found = verdict(name, base, *edits)
    assert found.verdict == expected, found.reasons
    assert any(decides in reason for reason in found.reasons) or not decides
    assert bool(found.launch) == (expected != "unsupported")
    assert ("spec-convert normalize" in found.launch) == (expected == "needs-normalize")


def test_launch_of_a_reduced_bonus_draft_on_stock_sglang() -> None:
    assert verdict(STOCK, BONUS).launch.splitlines() == [
        "spec-convert normalize DRAFT --layout sglang-dense --target TARGET --out DRAFT-sglang-dense",
        "python -m sglang.launch_server --model-path TARGET --speculative-algorithm DSPARK --speculative-draft-model-path DRAFT-sglang-dense "
        "--speculative-draft-attention-backend triton",
    ]


SILENT = {
    "window": ("library/0.9.0/sliding-causal", "counted from each slot"),
    "recurrent head": ("library/0.9.0/rnn-bonus-reduced", "starts at the first sampled slot"),
    "query rows": (BONUS, "count gamma rows"),
}
"""What stock SGLang does otherwise than training, without a word: the draft, and the reason that warns of it."""


@pytest.mark.parametrize("name", [OLD, STOCK])
@pytest.mark.parametrize("defect", SILENT)
def test_users_of_stock_are_warned_of_silent_defects(name: str, defect: str) -> None:
    base, text = SILENT[defect]
    found = verdict(name, base)
    assert found.verdict == "needs-normalize"
    assert any(text in reason for reason in found.reasons), found.reasons
    assert ("--speculative-draft-attention-backend triton" in found.launch) == (defect != "window")
    assert not any(text in reason for _, text in SILENT.values() for reason in verdict(name, FULL).reasons)


@pytest.mark.parametrize("defect", SILENT)
def test_the_plugin_mends_them_for_speculators_files(defect: str) -> None:
    base, text = SILENT[defect]
    found = verdict(PLUGIN, base)
    assert found.verdict == "loads"
    assert not any(text in reason and "the plugin widens it" not in reason for reason in found.reasons), found.reasons
    assert ("--speculative-draft-attention-backend triton" in found.launch) is (defect == "window"), "FlashAttention keeps the window's early slots from the trained view"


def test_native_files_beside_the_plugin_are_served_as_by_stock() -> None:
    """The plugin leaves them to SGLang's own classes, defects included."""
    rows = verdict(PLUGIN, "good/deepspec-sglang-bonus")
    assert (rows.verdict, rows.launch.endswith("--speculative-draft-attention-backend triton")) == ("loads", True)
    recurrent = verdict(PLUGIN, "good/deepspec-rnn", ("put", "/sample_from_anchor", False))
    assert any("starts at the first sampled slot" in reason and "Speculators files only" in reason for reason in recurrent.reasons), recurrent.reasons
    assert not any("starts at the first sampled slot" in reason for reason in verdict(PLUGIN, "good/deepspec-rnn").reasons)
    window = verdict(PLUGIN, NATIVE, ("set", "/layer_types", ["sliding_attention"] * 2), ("put", "/sliding_window", 8), ("put", "/use_sliding_window", True))
    assert any("counted from each slot" in reason and "Speculators files only" in reason for reason in window.reasons), window.reasons


def test_launches_with_a_step_before_them() -> None:
    assert verdict(LLAMA, REDUCED).launch.splitlines() == [
        "python convert_hf_to_gguf.py DRAFT --target-model-dir TARGET --outtype bf16 --outfile DRAFT.gguf",
        "llama-server -m TARGET.gguf -md DRAFT.gguf --spec-type draft-dspark --spec-draft-n-max 4",
    ]
    assert verdict(LLAMA, "good/gguf-dspark-full").launch == "llama-server -m TARGET.gguf -md DRAFT/draft.gguf --spec-type draft-dspark --spec-draft-n-max 7"
    assert verdict(TRT, "good/bundled-v4").launch.splitlines() == [
        "printf 'speculative_config:\\n  decoding_type: DSpark\\n  max_draft_len: %s\\n' 5 > dspark.yaml",
        "trtllm-serve DRAFT --extra_llm_api_options dspark.yaml",
    ]


def test_a_draft_inside_its_target_is_served_from_there() -> None:
    assert verdict(STOCK, "good/bundled-v4").launch == "python -m sglang.launch_server --model-path DRAFT --speculative-algorithm DSPARK"


def test_the_target_decides_what_the_file_leaves_open() -> None:
    from speculators_convert.target.pairing import collect_pairing  # noqa: PLC0415

    spec, checkpoint = read(FULL)
    target = Draft.load(FIXTURES / "library/target").apply((("set", "/num_hidden_layers", 3), ("set", "/max_position_embeddings", 9999)))
    held = MemorySource(target.files())
    pairing = collect_pairing(MemorySource(Draft.load(FIXTURES / FULL).files()), spec, None, held, collect(held))
    alone = {f"{item.engine} {item.version}": item for item in verdicts(spec, checkpoint, "DRAFT")}
    paired = {f"{item.engine} {item.version}": item for item in verdicts(spec, checkpoint, "DRAFT", pairing=pairing)}
    assert alone[PLUGIN].verdict == "loads"
    assert paired[PLUGIN].verdict == "unsupported"
    assert any("last layer" in reason for reason in paired[PLUGIN].reasons)
    assert "--model-path" not in paired[PLUGIN].launch
    assert "serve memory " in paired[VLLM].launch


def test_launch_on_vllm_states_the_drafted_tokens() -> None:
    assert verdict(VLLM, BONUS).launch == """vllm serve TARGET --speculative-config '{"method": "dspark", "model": "DRAFT", "num_speculative_tokens": 3}'"""


def test_the_target_is_taken_from_a_hub_name() -> None:
    found = verdict(PLUGIN, FULL, ("set", "/speculators_config/verifier/name_or_path", "Qwen/Qwen3-8B"))
    assert "--model-path Qwen/Qwen3-8B " in found.launch


def test_a_degree_that_does_not_divide() -> None:
    assert verdict(PLUGIN, FULL, tp=(2,)).launch.endswith("--tp-size 2")
    assert verdict(PLUGIN, FULL, tp=(3,)).verdict == "unsupported"
    some = verdict(PLUGIN, FULL, tp=(2, 3))
    assert (some.verdict, some.launch[-1]) == ("loads", "2")
    assert "not at tensor-parallel degree 3" in some.reasons[0]


@pytest.mark.parametrize("engine", engines(), ids=lambda engine: f"{engine.engine} {engine.version}")
def test_an_engine_file_uses_known_facts_and_names_sources(engine: Engine) -> None:
    known = facts(*read(FULL))
    conditions = [rule.when for rule in engine.rules] + [item.when for item in engine.additions] + [item.when for item in (*engine.preparations, *engine.launches) if item.when]
    assert {name for condition in conditions for name in condition.names()} <= set(known)
    assert len({rule.id for rule in engine.rules}) == len(engine.rules)
    for rule in engine.rules:
        rule.reason.format_map(known)
        rule.decides.format_map(known)
        assert rule.source


def test_each_fact_is_used() -> None:
    used = {name for engine in engines() for rule in engine.rules for name in rule.when.names()}
    extra = [item for engine in engines() for item in (*engine.additions, *engine.preparations, *engine.launches)]
    used |= {name for item in extra if item.when for name in item.when.names()}
    assert used == set(facts(*read(FULL)))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"fact": "a", "eq": 1}, True),
        ({"fact": "a", "ne": 1}, False),
        ({"fact": "none", "ne": None}, False),
        ({"fact": "a", "in": [1, 2]}, True),
        ({"fact": "a", "lt": 1}, False),
        ({"fact": "a", "gt": 0}, True),
        ({"fact": "none", "lt": 1}, False),
        ({"all": [{"fact": "a", "eq": 1}, {"fact": "a", "eq": 2}]}, False),
        ({"any": [{"fact": "a", "eq": 1}, {"fact": "a", "eq": 2}]}, True),
    ],
)
def test_conditions(condition: dict[str, Any], expected: bool) -> None:
    assert Condition.model_validate(condition).holds({"a": 1, "none": None}) is expected
