"""The mutations that the detection score is measured with: one per catalogue rule and per kind of public report.

The list was written before the checks. A mutation is data: the edits that make it (`draft_editor.py` runs them), the
codes of which at least one must be found, what the finder needs, and the public report behind it. An edit whose pointer
or tensor a fixture lacks makes the mutation not applicable there. A mutation that no check can find stays in `EXCLUDED`
with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FILE, TARGET, DEEP = "file", "target", "deep"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One defect: `rule` is the catalogue letter and number, `traits` what a fixture must have."""

    name: str
    rule: str
    codes: tuple[str, ...]
    needs: str
    edits: tuple[tuple[Any, ...], ...]
    traits: tuple[str, ...] = ()
    reported: str = ""
    reason_excluded: str = ""


def _m(name: str, rule: str, codes: str, needs: str, *edits: tuple[Any, ...], traits: str = "", reported: str = "") -> Mutation:
    return Mutation(name, rule, tuple(codes.split()), needs, edits, tuple(traits.split()), reported)


_B = "/transformer_layer_config"
_METHOD = "/speculators_config/proposal_methods"

CONTAINER = (
    _m("empty-file", "P3", "DSP001", FILE, ("truncate", 0)),
    _m("length-over-limit", "P3", "DSP002", FILE, ("length", 1 << 60)),
    _m("lfs-pointer", "P3", "DSP002", FILE, ("overwrite", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), reported="huggingface_hub#4725"),
    _m("length-beyond-file", "P3", "DSP003", FILE, ("length", 90_000_000)),
    _m("header-not-json", "P3", "DSP004", FILE, ("header-text", '"dtype":', '"dtype";')),
    _m("header-leading-space", "P3", "DSP004", FILE, ("header-text", "{", " {")),
    _m("header-duplicate-key", "P3", "DSP005", FILE, ("duplicate-entry",), reported="safetensors README, Format"),
    _m("metadata-number", "P2", "DSP006", FILE, ("metadata", "step", 7), reported="safetensors#549"),
    _m("entry-without-dtype", "P3", "DSP007", FILE, ("entry-delete", "fc.weight", "dtype")),
    _m("entry-unknown-dtype", "P3", "DSP007", FILE, ("entry-set", "fc.weight", "dtype", "BF17")),
    _m("entry-negative-shape", "P3", "DSP007", FILE, ("entry-set", "fc.weight", "shape", [-1, 4])),
    _m("entry-shape-not-fitting", "P3", "DSP008", FILE, ("entry-set", "norm.weight", "shape", [3])),
    _m("tensors-overlap", "P3", "DSP009", FILE, ("offsets", "norm.weight", -2), reported="dyana#197"),
    _m("hole-between-tensors", "P3", "DSP010", FILE, ("hole", 8)),
    _m("file-cut-short", "P3", "DSP011", FILE, ("truncate", -64)),
    _m("bytes-after-the-end", "P3", "DSP012", FILE, ("append", 16)),
    _m("config-missing", "P1", "DSP020", FILE, ("remove", "config.json")),
    _m("config-not-json", "P1", "DSP021", FILE, ("write", "config.json", "{'a': 1}")),
    _m("config-duplicate-key", "P1", "DSP021", FILE, ("config-text", '"block_size":', '"block_size": 3, "block_size":')),
    _m("config-nan", "P1", "DSP021", FILE, ("config-text", '"mask_token_id":', '"x": NaN, "mask_token_id":')),
    _m("config-a-list", "P1", "DSP022", FILE, ("write", "config.json", "[]")),
    _m("no-weights", "P1", "DSP030", FILE, ("remove-weights",), reported="Edge-LLM#200"),
    _m("index-without-map", "P1", "DSP031", FILE, ("split", 2), ("index", "/weight_map", None), traits="single"),
    _m("index-names-missing-shard", "P1", "DSP032", FILE, ("split", 2), ("remove", "model-00002-of-00002.safetensors"), traits="single", reported="huggingface_hub#4725"),
    _m(
        "shard-not-in-index",
        "P1",
        "DSP033",
        FILE,
        ("split", 2),
        ("copy-file", "model-00001-of-00002.safetensors", "model-old.safetensors"),
        traits="single",
        reported="huggingface_hub#4725",
    ),
    _m("tensor-not-in-index", "P1", "DSP034", FILE, ("split", 2), ("index-delete", "fc.weight"), traits="single", reported="huggingface_hub#4725"),
    _m("tensor-in-wrong-shard", "P1", "DSP035", FILE, ("split", 2), ("index-swap", "fc.weight"), traits="single"),
    _m("tensor-in-two-shards", "P1", "DSP036", FILE, ("split", 2), ("duplicate-in-shards", "fc.weight"), traits="single"),
    _m("index-names-absent-tensor", "P1", "DSP037", FILE, ("split", 2), ("index-add", "layers.9.absent.weight"), traits="single"),
    _m("format-unknown", "C1", "DSP040", FILE, ("delete", "/speculators_model_type"), reported="sglang#40630"),
    _m("format-unknown-label", "C1", "DSP040", FILE, ("set", "/speculators_model_type", "dsparkle")),
    _m("pickle-beside", "P4", "DSP401", FILE, ("write", "optimizer.pt", "PK"), reported="modelscan#263"),
    _m("metadata-without-format", "P2", "DSP403", FILE, ("metadata", "format", None), reported="safetensors#549"),
)

VOCABULARY = (
    _m("d2t-missing", "V1", "DSP101", FILE, ("drop", "d2t"), traits="reduced", reported="vllm-ascend#16166"),
    _m("t2d-missing", "V1", "DSP101", FILE, ("drop", "t2d"), traits="reduced"),
    _m("tables-on-full-vocabulary", "V1", "DSP101", FILE, ("add", "d2t", "I64", "/draft_vocab_size"), traits="full", reported="vllm#55133"),
    _m("d2t-int32", "V2", "DSP102", FILE, ("retype", "d2t", "I32"), traits="reduced"),
    _m("d2t-float", "V2", "DSP102", FILE, ("retype", "d2t", "F32"), traits="reduced"),
    _m("d2t-too-short", "V2", "DSP102", FILE, ("crop", "d2t", 0, -1), traits="reduced"),
    _m("d2t-two-dimensions", "V2", "DSP102", FILE, ("reshape", "d2t", [1, -1]), traits="reduced"),
    _m("t2d-int64", "V2", "DSP103", FILE, ("retype", "t2d", "I64"), traits="reduced"),
    _m("t2d-bytes", "V2", "DSP103", FILE, ("retype", "t2d", "U8"), traits="reduced"),
    _m("t2d-too-short", "V2", "DSP103", FILE, ("crop", "t2d", 0, -1), traits="reduced"),
    _m("d2t-absolute", "V5", "DSP104", FILE, ("absolute",), traits="reduced", reported="TorchSpec convert_to_hf"),
    _m("d2t-absolute-without-t2d", "V5", "DSP104", FILE, ("absolute",), ("drop", "t2d"), traits="reduced wide", reported="TorchSpec convert_to_hf"),
    _m("d2t-past-the-vocabulary", "V3", "DSP105", FILE, ("value", "d2t", -1, 1_000_000), traits="reduced", reported="mobilint build_eagle3"),
    _m("d2t-negative", "V3", "DSP105", FILE, ("value", "d2t", 0, -5), traits="reduced"),
    _m("d2t-overflow", "V3", "DSP105", FILE, ("value", "d2t", -1, (1 << 63) - 1), traits="reduced"),
    _m("d2t-two-swapped", "V3", "DSP106", FILE, ("swap-targets", 10, 20), traits="reduced"),
    _m("d2t-same-target-twice", "V3", "DSP107", FILE, ("repeat-target", 11), traits="reduced"),
    _m("t2d-one-bit-moved", "V4", "DSP108", FILE, ("move-bit",), traits="reduced"),
    _m("t2d-two-bits-more", "V4", "DSP108", FILE, ("set-bits", 2), traits="reduced"),
    _m("t2d-inverted", "V4", "DSP108", FILE, ("invert", "t2d"), traits="reduced"),
    _m("t2d-byte-two", "V2", "DSP109", FILE, ("value", "t2d", "first-true", 2), traits="reduced"),
    _m("d2t-all-zero", "V6", "DSP110", FILE, ("fill", "d2t", 0), traits="reduced", reported="vllm qwen3_dflash zeros"),
    _m("d2t-arange", "V6", "DSP110", FILE, ("arange", "d2t"), ("drop", "t2d"), traits="reduced"),
    _m("head-rows-rolled", "V7", "DSP112", TARGET, ("roll", "lm_head.weight", 1), traits="reduced"),
    _m("head-first-rows", "V7", "DSP112", TARGET, ("head-first-rows",), traits="reduced", reported="TorchSpec convert_to_hf"),
    _m("other-tokens-kept", "V7", "DSP112", TARGET, ("remap",), traits="reduced", reported="speculators#1081"),
    _m("markov-w1-rows", "V9", "DSP326", FILE, ("crop", "markov_head.markov_w1.weight", 0, -2), traits="markov"),
    _m("markov-w2-rows", "V9", "DSP327", FILE, ("crop", "markov_head.markov_w2.weight", 0, -2), traits="markov"),
    _m("markov-ranks-differ", "V9", "DSP328", FILE, ("crop", "markov_head.markov_w2.weight", 1, -1), traits="markov"),
    _m("markov-rank-stated-wrong", "V9", "DSP328", FILE, ("set", "/markov_rank", 77), traits="markov"),
    _m("vocab-size-stated-wrong", "V9", "DSP326", FILE, ("set", f"{_B}/vocab_size", 77), traits="markov", reported="speculators#188"),
    _m("draft-vocab-size-stated-wrong", "V9", "DSP327", FILE, ("set", "/draft_vocab_size", 77)),
    _m(
        "vocabulary-not-the-targets",
        "V10",
        "DSP701",
        TARGET,
        ("set", f"{_B}/vocab_size", 77),
        ("crop-rows-to", "markov_head.markov_w1.weight", 77),
        ("drop", "embed_tokens.weight"),
        traits="markov full",
    ),
)

LAYOUT = (
    _m("anchor-undecided", "L1", "DSP202", FILE, ("delete", "/sample_from_anchor"), ("delete", _METHOD), reported="sglang#40144 vllm#56792"),
    _m("anchor-flipped", "L2", "DSP203", FILE, ("flip", "/sample_from_anchor"), reported="sglang#40144"),
    _m("tokens-over-block", "L2", "DSP203", FILE, ("set", f"{_METHOD}/0/speculative_tokens", 29), reported="vllm#41834"),
    _m("tokens-of-older-dflash", "L2", "DSP203", FILE, ("add-to", f"{_METHOD}/0/speculative_tokens", 1), reported="speculators#456"),
    _m("block-size-missing", "L2", "DSP204", FILE, ("delete", "/block_size")),
    _m("block-without-draft-slot", "L2", "DSP204", FILE, ("set", "/block_size", 1), traits="bonus"),
    _m("markov-misaligned-build", "L3", "DSP205", FILE, ("set", "/speculators_version", "0.7.0.dev41"), traits="anchor markov", reported="speculators#806"),
    _m("anchor-a-string", "L1", "DSP201", FILE, ("set", "/sample_from_anchor", "false")),
    _m("block-size-zero", "L2", "DSP201", FILE, ("set", "/block_size", 0)),
    _m("block-size-a-list", "L2", "DSP201", FILE, ("set", "/block_size", [7])),
    _m("taps-missing", "T1", "DSP210", FILE, ("delete", "/aux_hidden_state_layer_ids"), reported="dflash#156 dflash#157"),
    _m("taps-repeated", "T1", "DSP211", FILE, ("copy-item", "/aux_hidden_state_layer_ids", 1, 0)),
    _m("taps-reversed", "T1", "DSP212", FILE, ("reverse", "/aux_hidden_state_layer_ids")),
    _m("taps-negative", "T2", "DSP213", FILE, ("set", "/aux_hidden_state_layer_ids/0", -5), reported="sglang#30982"),
    _m("taps-over-stated-depth", "T2", "DSP213", FILE, ("set", "/num_target_layers", 1), traits="native"),
    _m("taps-one-fewer", "T3", "DSP214", FILE, ("pop", "/aux_hidden_state_layer_ids")),
    _m("fc-too-narrow", "T3", "DSP214", FILE, ("crop", "fc.weight", 1, -8)),
    _m("taps-two-spellings", "T4", "DSP215", FILE, ("copy-key", "/aux_hidden_state_layer_ids", "/target_layer_ids")),
    _m("taps-past-the-target", "T2", "DSP703", TARGET, ("set-last", "/aux_hidden_state_layer_ids", 90), reported="sglang#34734"),
    _m("stated-depth-wrong", "T5", "DSP704", TARGET, ("set", "/num_target_layers", 91), traits="native"),
    _m("mask-missing", "M1", "DSP220", FILE, ("delete", "/mask_token_id")),
    _m("mask-past-the-vocabulary", "M1", "DSP220", FILE, ("set", "/mask_token_id", 9_999_999)),
    _m("mask-negative", "M1", "DSP201", FILE, ("set", "/mask_token_id", -1)),
    _m("mask-is-eos", "M2", "DSP222", FILE, ("copy-key", "/mask_token_id", f"{_B}/eos_token_id")),
    _m("mask-is-the-targets-eos", "M2", "DSP710", TARGET, ("set", "/mask_token_id", 0), traits="trained"),
    _m("mask-an-ordinary-token", "M2", "DSP710", TARGET, ("set", "/mask_token_id", 500), traits="trained", reported="TorchSpec#133"),
    _m("mask-two-values", "M3", "DSP221", FILE, ("require", "/mask_token_id"), ("put", "/dflash_config/mask_token_id", 5), traits="native"),
)

BACKBONE = (
    _m("theta-missing", "R1", "DSP230", FILE, ("delete", f"{_B}/rope_parameters"), ("delete?", f"{_B}/rope_theta"), reported="Lucebox#447"),
    _m("theta-two-values", "R1", "DSP231", FILE, ("require", f"{_B}/rope_parameters/rope_theta"), ("put", f"{_B}/rope_theta", 12345.0), reported="modelopt#2221"),
    _m("theta-a-string", "R1", "DSP201", FILE, ("set", f"{_B}/rope_parameters/rope_theta", "1e6")),
    _m("partial-rotary", "R2", "DSP232", FILE, ("put", f"{_B}/partial_rotary_factor", 0.25), traits="speculators", reported="sglang#34734"),
    _m("mrope-section", "R2", "DSP232", FILE, ("put", f"{_B}/rope_parameters/mrope_section", [1, 1, 2])),
    _m("yarn-without-factor", "R3", "DSP233", FILE, ("set", f"{_B}/rope_parameters/rope_type", "yarn")),
    _m("rope-type-unknown", "R3", "DSP233", FILE, ("set", f"{_B}/rope_parameters/rope_type", "spiral")),
    _m("rope-by-layer-type", "R3", "DSP234", FILE, ("put", f"{_B}/rope_parameters", {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}})),
    _m("layer-types-short", "S1", "DSP240", FILE, ("pop", f"{_B}/layer_types")),
    _m("layer-types-unknown", "S1", "DSP240", FILE, ("set", f"{_B}/layer_types/0", "chunked_attention")),
    _m("sliding-without-window", "S2", "DSP241", FILE, ("set", f"{_B}/sliding_window", None), traits="sliding"),
    _m("window-switched-off", "S2", "DSP242", FILE, ("set", f"{_B}/use_sliding_window", False), traits="sliding", reported="transformers Qwen3Config"),
    _m("non-causal-a-string", "S3", "DSP201", FILE, ("set", "/sliding_window_non_causal", "yes")),
    _m("hidden-size-wrong", "W1", "DSP320", FILE, ("set", f"{_B}/hidden_size", 333)),
    _m("intermediate-size-wrong", "W1", "DSP321", FILE, ("set", f"{_B}/intermediate_size", 333)),
    _m("layer-count-wrong", "W1", "DSP322", FILE, ("set", f"{_B}/num_hidden_layers", 9)),
    _m("heads-wrong", "C5", "DSP323", FILE, ("set", f"{_B}/num_attention_heads", 64)),
    _m("kv-heads-wrong", "C5", "DSP324", FILE, ("set", f"{_B}/num_key_value_heads", 64)),
    _m("head-dim-wrong", "W1", "DSP325", FILE, ("set", f"{_B}/head_dim", 333)),
    _m("max-position-missing", "C3", "DSP250", FILE, ("delete", f"{_B}/max_position_embeddings")),
    _m("max-position-a-list", "C3", "DSP201", FILE, ("set", f"{_B}/max_position_embeddings", [1])),
    _m("max-position-under-target", "C3", "DSP707", TARGET, ("set", f"{_B}/max_position_embeddings", 8)),
    _m("verifier-local-path", "C4", "DSP260", FILE, ("set", "/speculators_config/verifier/name_or_path", "/mnt/run/target-final"), reported="vllm 0.33.0 speculators path"),
    _m("verifier-missing", "C4", "DSP260", FILE, ("delete", "/speculators_config/verifier")),
    _m("verifier-of-other-class", "C4", "DSP709", TARGET, ("set", "/speculators_config/verifier/architectures", ["LlamaForCausalLM"]), reported="speculators#613"),
    _m("dflash-label", "C1", "DSP262", FILE, ("set", "/architectures", ["DFlashDraftModel"]), traits="markov", reported="sglang#40144"),
    _m("tied-but-own-head", "P5", "DSP263", FILE, ("put", "/tie_word_embeddings", True), reported="mergekit#328"),
    _m("dtype-not-the-weights", "W5", "DSP264", FILE, ("set", "/dtype", "float16")),
    _m("dtype-missing", "W5", "DSP265", FILE, ("delete", "/dtype"), ("delete?", f"{_B}/dtype"), ("delete?", "/torch_dtype"), reported="sglang model_config auto dtype"),
)

WEIGHTS = (
    _m("layer-tensor-missing", "W1", "DSP301", FILE, ("drop", "layers.0.self_attn.k_proj.weight"), reported="sglang#32279"),
    _m("norm-missing", "W1", "DSP301", FILE, ("drop", "hidden_norm.weight"), reported="speculators#1114"),
    _m("markov-w2-missing", "W1", "DSP301", FILE, ("drop", "markov_head.markov_w2.weight"), traits="markov", reported="speculators#1131"),
    _m("fc-missing", "W1", "DSP301", FILE, ("drop", "fc.weight")),
    _m("layer-lost", "W1", "DSP301 DSP322", FILE, ("drop-matching", r"layers\.0\..*")),
    _m("head-missing", "W1", "DSP301", FILE, ("drop", "lm_head.weight"), traits="reduced", reported="Edge-LLM#200"),
    _m("tensor-unknown", "W1", "DSP303", FILE, ("add-tensor", "layers.0.self_attn.sinks", "BF16", [4]), reported="sglang#32279"),
    _m("prefix-model", "W4", "DSP304", FILE, ("rename", r"(.*)", r"model.\1"), reported="vllm qwen3_dspark loader"),
    _m("prefix-draft-model", "W4", "DSP304", FILE, ("rename", r"(.*)", r"draft_model.\1")),
    _m("markov-under-logit-head", "W4", "DSP304", FILE, ("rename", r"(markov_head\..*)", r"logit_head.\1"), traits="markov", reported="SpecForge legacy export"),
    _m("markov-names-flat", "W4", "DSP301", FILE, ("rename", r"markov_head\.(markov_w[12].*)", r"\1"), traits="markov", reported="modelopt export"),
    _m("projection-transposed", "W1", "DSP302", FILE, ("transpose", "layers.0.mlp.up_proj.weight")),
    _m("norm-two-dimensions", "W1", "DSP302", FILE, ("reshape", "hidden_norm.weight", [1, -1])),
    _m("confidence-tensors-missing", "W7", "DSP330", FILE, ("drop-matching", r"confidence_head\..*"), traits="confidence", reported="sglang 0.5.23 build_confidence_head"),
    _m("confidence-switched-off", "W7", "DSP330", FILE, ("set", "/enable_confidence_head", False), traits="confidence"),
    _m("confidence-width-not-the-flag", "W7", "DSP331", FILE, ("flip", "/confidence_head_with_markov"), traits="confidence markov"),
    _m("confidence-width-fits-nothing", "W7", "DSP302", FILE, ("crop", "confidence_head.proj.weight", 1, -3), traits="confidence"),
    _m("gated-called-vanilla", "W1", "DSP329", FILE, ("set", "/markov_head_type", "vanilla"), traits="gated"),
    _m("vanilla-called-gated", "W1", "DSP329", FILE, ("set", "/markov_head_type", "gated"), traits="vanilla"),
    _m("rnn-called-gated", "W1", "DSP329", FILE, ("set", "/markov_head_type", "gated"), traits="rnn"),
    _m("head-kind-unknown", "W1", "DSP201", FILE, ("set", "/markov_head_type", "mamba"), traits="markov"),
    _m("gate-bias-missing", "W1", "DSP301", FILE, ("drop", "markov_head.gate_proj.bias"), traits="gated"),
    _m("quantization-copied", "Q1", "DSP504", FILE, ("put", "/quantization_config", {"quant_method": "fp8", "weight_block_size": [128, 128]}), reported="sglang#36677"),
    _m("weight-without-scale", "Q2", "DSP502", FILE, ("retype", "layers.0.mlp.up_proj.weight", "F8_E4M3"), reported="vllm#47584"),
    _m("tp-does-not-divide", "C5", "DSP350", FILE, ("tp", 3)),
    _m("weight-nan", "W2", "DSP601", DEEP, ("poke", "layers.0.mlp.up_proj.weight", "nan"), reported="speculators#962"),
    _m("weight-inf", "W2", "DSP601", DEEP, ("poke", "markov_head.markov_w1.weight", "inf"), traits="markov"),
    _m("head-never-loaded", "W2", "DSP601", DEEP, ("fill-float", "lm_head.weight", "nan"), traits="head", reported="speculators#962"),
    _m("weight-all-zero", "W3", "DSP602", DEEP, ("fill-float", "layers.0.self_attn.o_proj.weight", "0")),
    _m("weight-constant", "W3", "DSP603", DEEP, ("fill-float", "fc.weight", "0.5")),
    _m("markov-untrained", "W3", "DSP604", DEEP, ("fill-init", "markov_head.markov_w2.weight", 0.02), traits="markov trained", reported="sglang#32279"),
    _m("embed-not-the-targets", "W6", "DSP605", DEEP, ("roll", "embed_tokens.weight", 1), traits="embed paired"),
    _m("one-head-row-wrong", "V7", "DSP606", DEEP, ("change-row", "lm_head.weight", 17), traits="head paired"),
)

EXCLUDED = (
    Mutation(
        "taps-off-by-one",
        "T4",
        (),
        FILE,
        (("add-each", "/aux_hidden_state_layer_ids", 1),),
        reported="sglang#30982",
        reason_excluded="ids stay ascending and inside the target and no tensor depends on them: only a drafting run tells",
    ),
    Mutation(
        "anchor-flipped-with-tokens",
        "L2",
        (),
        FILE,
        (("flip", "/sample_from_anchor"), ("shift-tokens",)),
        reported="sglang#40144",
        reason_excluded="the file is consistent in the other layout: only a drafting run tells",
    ),
    Mutation(
        "theta-changed",
        "R4",
        (),
        FILE,
        (("set", f"{_B}/rope_parameters/rope_theta", 10_000.0),),
        reported="modelopt#2221",
        reason_excluded="a draft may be trained with a theta of its own; with --target the difference is reported as DSP708 (info)",
    ),
    Mutation("mask-other-reserved-token", "M2", (), FILE, (("set", "/mask_token_id", 1),), reason_excluded="any reserved token may be the mask that training used"),
    Mutation(
        "gate-weights-of-another-draft",
        "W3",
        (),
        DEEP,
        (("roll", "markov_head.gate_proj.weight", 1),),
        reason_excluded="plausible values in the wrong place: only a drafting run tells",
    ),
    Mutation(
        "markov-misaligned-release-label",
        "L3",
        (),
        FILE,
        (),
        reported="speculators#806",
        reason_excluded="a misaligned head that carries a release version shows nothing in the file",
    ),
)

MUTATIONS: tuple[Mutation, ...] = CONTAINER + VOCABULARY + LAYOUT + BACKBONE + WEIGHTS
