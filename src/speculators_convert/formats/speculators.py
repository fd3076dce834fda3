"""Speculators checkpoints (`speculators_model_type` "dspark"), 0.7 to 0.9 and older ones without `sample_from_anchor`.

Rules: speculators 0.9.0 `models/dspark/config.py` (`speculative_tokens` is `block_size` with a sampled anchor and one
less without), `models/dflash/core.py` (`aux_hidden_state_layer_ids` index HF hidden_states, so output ids are one lower).
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.backbone import Tensors, read_confidence, read_dtype, read_layer_types, read_markov, read_rope, read_widths
from speculators_convert.formats.base import ConfigReader, Reading
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.roles import resolve
from speculators_convert.spec import Anchor, DraftSpec, Settings, Verifier
from speculators_convert.vocabulary import read_kind, read_tables


class Speculators:
    """The Speculators layout: nested backbone config, own (reduced) vocabulary."""

    name = "speculators"
    title = "Speculators (vllm-project/speculators)"
    order = 20

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """The key that vLLM keys on: `speculators_model_type`."""
        kind = checkpoint.config.get("speculators_model_type")
        return (f'config.json#/speculators_model_type is "{kind}"',) if kind == "dspark" else ()

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form of a Speculators checkpoint."""
        log, config = EvidenceLog(), ConfigReader(checkpoint.config)
        backbone = config.sub("transformer_layer_config")
        by_role, unknown = resolve(checkpoint)
        tensors = Tensors(by_role)
        widths = read_widths(log, tensors, backbone, (config.integer("draft_vocab_size", minimum=1), config.at("draft_vocab_size")))
        kind, why = read_kind(read_tables(checkpoint), widths.target_vocab_size)
        log.pick("d2t", (kind, why))
        tokens = _speculative_tokens(config)
        block_size = config.integer("block_size", minimum=1)
        version = config.string("speculators_version")
        anchor = _anchor(log, config, settings, block_size, tokens, version)
        markov = read_markov(log, tensors, config, settings)
        verifier = config.sub("speculators_config").sub("verifier")
        gamma, slots = _geometry(log, config, settings, anchor, block_size)
        spec = DraftSpec(
            format=self.name,
            anchor=anchor,
            gamma=gamma,
            query_slots=slots,
            target_layer_ids=_layer_ids(config, log, settings),
            target_vocab_size=widths.target_vocab_size,
            draft_vocab_size=widths.draft_vocab_size or widths.target_vocab_size,
            d2t=kind,
            hidden_size=widths.hidden_size,
            target_hidden_size=config.integer("target_hidden_size", minimum=1) or widths.hidden_size,
            intermediate_size=widths.intermediate_size,
            num_hidden_layers=widths.num_hidden_layers,
            num_attention_heads=widths.num_attention_heads,
            num_key_value_heads=widths.num_key_value_heads,
            head_dim=widths.head_dim,
            rms_norm_eps=backbone.number("rms_norm_eps") or log.pick("rms_norm_eps_default", (1e-6, "no rms_norm_eps in the file: Qwen3Config's default")),
            hidden_act=backbone.string("hidden_act") or "silu",
            attention_bias=bool(backbone.boolean("attention_bias")),
            max_position_embeddings=settings.max_position_embeddings or backbone.integer("max_position_embeddings", minimum=1),
            layer_types=read_layer_types(backbone, widths.num_hidden_layers),
            sliding_window=settings.sliding_window or backbone.integer("sliding_window", minimum=1),
            sliding_causal=not _non_causal(log, config, settings),
            rope=read_rope(log, backbone, settings),
            markov=markov,
            confidence=read_confidence(log, tensors, config, markov.rank if markov else None, widths.hidden_size),
            mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), (config.integer("mask_token_id", minimum=0), config.at("mask_token_id"))),
            dtype=read_dtype(log, tensors, config, backbone),
            tie_word_embeddings=bool(config.boolean("tie_word_embeddings")),
            verifier=Verifier(name_or_path=settings.verifier or verifier.string("name_or_path"), architectures=verifier.strings("architectures")),
            speculative_tokens=tokens,
            producer_version=version,
            tensors=by_role,
            unknown_tensors=unknown,
            evidence=tuple(log.items),
        )
        return Reading(spec, tuple(config.problems))


def _speculative_tokens(config: ConfigReader) -> int | None:
    table = config.sub("speculators_config")
    methods = table.table.get("proposal_methods")
    if not isinstance(methods, list) or not methods or not isinstance(methods[0], dict):
        return None
    method = ConfigReader(methods[0], f"{table.pointer}/proposal_methods/0", config.file, config.problems)
    return method.integer("speculative_tokens", minimum=1)


def _anchor(log: EvidenceLog, config: ConfigReader, settings: Settings, block_size: int | None, tokens: int | None, version: str | None) -> Anchor | None:
    """Explicit key, then tokens against block_size, then the release that began to write the key (0.7.0)."""
    by_count = None
    if block_size and tokens:
        by_count = Anchor.SAMPLED if tokens == block_size else Anchor.BONUS if tokens == block_size - 1 else None
    return log.pick(
        "anchor",
        (_of(settings.sample_from_anchor), "--set sample_from_anchor"),
        (_of(config.boolean("sample_from_anchor")), config.at("sample_from_anchor")),
        (by_count, f"speculative_tokens {tokens} against block_size {block_size}"),
        (Anchor.BONUS if version and _before_0_7(version) and "sample_from_anchor" not in config.table else None, f"speculators {version}: older than the key sample_from_anchor, whose exports do not sample the anchor"),
    )


def _of(sample_from_anchor: bool | None) -> Anchor | None:
    if sample_from_anchor is None:
        return None
    return Anchor.SAMPLED if sample_from_anchor else Anchor.BONUS


def _before_0_7(version: str) -> bool:
    parts = version.split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 7


def _geometry(log: EvidenceLog, config: ConfigReader, settings: Settings, anchor: Anchor | None, block_size: int | None) -> tuple[int | None, int | None]:
    """Gamma and slots: `block_size` counts slots in both layouts, gamma is one less when the anchor is not sampled."""
    by_block = None
    if anchor is not None and block_size:
        by_block = block_size - (anchor is Anchor.BONUS)
    gamma = log.pick("gamma", (settings.gamma, "--set gamma"), (by_block, config.at("block_size")))
    if not gamma or anchor is None:
        return None, block_size if anchor is not None else None
    return gamma, gamma + (anchor is Anchor.BONUS)


def _layer_ids(config: ConfigReader, log: EvidenceLog, settings: Settings) -> tuple[int, ...] | None:
    ids = config.integers("aux_hidden_state_layer_ids")
    return log.pick(
        "target_layer_ids",
        (settings.target_layer_ids, "--set target_layer_ids"),
        (tuple(item - 1 for item in ids) if ids else None, config.at("aux_hidden_state_layer_ids") + " minus one"),
    )


def _non_causal(log: EvidenceLog, config: ConfigReader, settings: Settings) -> bool:
    value = log.pick(
        "sliding_window_non_causal",
        (settings.sliding_window_non_causal, "--set sliding_window_non_causal"),
        (config.boolean("sliding_window_non_causal"), config.at("sliding_window_non_causal")),
    )
    return bool(value)


FORMAT = Speculators()
