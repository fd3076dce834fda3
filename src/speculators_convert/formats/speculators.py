"""Speculators checkpoints (`speculators_model_type` "dspark" or "dflash"), 0.7 to 0.9 and older ones without `sample_from_anchor`.

Rules: speculators 0.9.0 `models/dspark/config.py` (`speculative_tokens` is `block_size` with a sampled anchor and one
less without), `models/dflash/core.py` (`aux_hidden_state_layer_ids` index HF hidden_states, so output ids are one lower).
"""

from __future__ import annotations

from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.backbone import (
    Tensors,
    read_confidence,
    read_dtype,
    read_layer_types,
    read_markov,
    read_max_position,
    read_quantization,
    read_rope,
    read_verifier,
    read_widths,
)
from speculators_convert.formats.base import ConfigReader, Reading
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.native import algorithm_of, anchor_of, has_markov
from speculators_convert.formats.places import Places
from speculators_convert.formats.roles import resolve
from speculators_convert.spec import Anchor, DraftSpec, Settings, Verifier
from speculators_convert.target.vocabulary import read_kind, read_tables

_KINDS = ("dspark", "dflash")


@dataclass(frozen=True, slots=True)
class _Stated:
    """What the file says about its block."""

    algorithm: str | None
    block_size: int | None
    tokens: int | None
    version: str | None


class Speculators:
    """The Speculators layout: nested backbone config, own (reduced) vocabulary."""

    name = "speculators"
    title = "Speculators (vllm-project/speculators)"
    order = 20

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """The key that vLLM keys on: `speculators_model_type`."""
        kind = checkpoint.config.get("speculators_model_type")
        return (f'config.json#/speculators_model_type is "{kind}"',) if kind in _KINDS else ()

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form of a Speculators checkpoint."""
        log, config = EvidenceLog(), ConfigReader(checkpoint.config)
        places = Places((config,))
        backbone = config.sub("transformer_layer_config")
        by_role, unknown = resolve(checkpoint)
        tensors = Tensors(by_role)
        algorithm = _algorithm(log, config, checkpoint)
        widths = read_widths(log, tensors, backbone, (config.integer("draft_vocab_size", minimum=1), config.at("draft_vocab_size")))
        kind, why = read_kind(read_tables(checkpoint), widths.target_vocab_size)
        log.pick("d2t", (kind, why))
        stated = _Stated(algorithm, config.integer("block_size", minimum=1), _speculative_tokens(config), config.string("speculators_version"))
        anchor = _anchor(log, config, settings, stated)
        markov = read_markov(log, tensors, places, settings)
        verifier = config.sub("speculators_config").sub("verifier")
        gamma, slots = _geometry(log, config, settings, anchor, stated)
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
            max_position_embeddings=read_max_position(log, backbone, settings),
            layer_types=read_layer_types(backbone, widths.num_hidden_layers),
            sliding_window=log.pick(
                "sliding_window", (settings.sliding_window, "--set sliding_window"), (backbone.integer("sliding_window", minimum=1), backbone.at("sliding_window"))
            ),
            sliding_causal=not _non_causal(log, config, settings),
            rope=read_rope(log, backbone, settings),
            markov=markov,
            confidence=read_confidence(log, tensors, places, markov.rank if markov else None, widths.hidden_size),
            mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), (config.integer("mask_token_id", minimum=0), config.at("mask_token_id"))),
            dtype=read_dtype(log, tensors, config, backbone),
            tie_word_embeddings=bool(config.boolean("tie_word_embeddings")),
            verifier=Verifier(
                name_or_path=read_verifier(log, (verifier.string("name_or_path"), verifier.at("name_or_path")), settings), architectures=verifier.strings("architectures")
            ),
            speculative_tokens=stated.tokens,
            num_target_layers=config.sub("spec_convert").integer("num_target_layers", minimum=1),
            producer_version=stated.version,
            quantization=read_quantization(checkpoint, config),
            tensors=by_role,
            unknown_tensors=unknown,
            evidence=tuple(log.items),
        )
        return Reading(spec, tuple(config.problems))


def _speculative_tokens(config: ConfigReader) -> int | None:
    table = config.sub("speculators_config")
    methods = table.table.get("proposal_methods")
    if methods is None or methods == []:
        return None
    if not isinstance(methods, list) or not isinstance(methods[0], dict):
        table.reject("proposal_methods", methods, "a list of objects")
        return None
    method = ConfigReader(methods[0], f"{table.pointer}/proposal_methods/0", config.file, config.problems)
    return method.integer("speculative_tokens", minimum=1)


def _algorithm(log: EvidenceLog, config: ConfigReader, checkpoint: Checkpoint) -> str | None:
    """Tensors before labels; a DSpark draft saved with `markov_rank` 0 has no table and is still what its label says."""
    by_tensors = "dspark" if has_markov(checkpoint) else "dflash" if checkpoint.tensors and config.table.get("markov_rank") != 0 else None
    labels = [(algorithm_of(label), config.at("architectures")) for label in config.strings("architectures")]
    return log.pick(
        "algorithm",
        (by_tensors, "markov_w1 and markov_w2 among the tensors, or not"),
        (config.choice("speculators_model_type", _KINDS), config.at("speculators_model_type")),
        *labels,
    )


def _anchor(log: EvidenceLog, config: ConfigReader, settings: Settings, stated: _Stated) -> Anchor | None:
    """Explicit key, then tokens against block_size, then the release that began to write the key (0.7.0).

    DFlash never samples the anchor, and before 2026-04-21 (speculators PR 456) its `speculative_tokens` counted slots.
    """
    absent, dflash, block_size, tokens = config.table.get("sample_from_anchor") is None, stated.algorithm == "dflash", stated.block_size, stated.tokens
    by_count = None
    if block_size and tokens and not dflash:
        by_count = Anchor.SAMPLED if tokens == block_size else Anchor.BONUS if tokens == block_size - 1 else None
    old = absent and not dflash and stated.version is not None and _before_0_7(stated.version)
    anchor = log.pick(
        "anchor",
        (anchor_of(settings.sample_from_anchor), "--set sample_from_anchor"),
        (anchor_of(config.boolean("sample_from_anchor")), config.at("sample_from_anchor")),
        (Anchor.BONUS if dflash and absent else None, "format rule: a DFlash block is the anchor and N drafts"),
        (by_count, f"speculative_tokens {tokens} against block_size {block_size}"),
        (Anchor.BONUS if old else None, f"speculators {stated.version}: older than the key sample_from_anchor, whose exports do not sample the anchor"),
    )
    if absent and settings.sample_from_anchor is None and anchor is Anchor.SAMPLED:
        log.note("anchor_disputed", Anchor.BONUS, "vLLM 0.33.0 reads an absent sample_from_anchor as false. --set sample_from_anchor= states it")
    return anchor


def _before_0_7(version: str) -> bool:
    parts = version.split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 7


def _geometry(log: EvidenceLog, config: ConfigReader, settings: Settings, anchor: Anchor | None, stated: _Stated) -> tuple[int | None, int | None]:
    """Gamma and slots: `block_size` counts slots in both layouts, gamma is one less when the anchor is not sampled."""
    less = int(anchor is Anchor.BONUS)
    by_block = stated.block_size - less if anchor is not None and stated.block_size and stated.block_size > less else None
    how = " minus one: the anchor's slot" if less else ""
    gamma = log.pick(
        "gamma",
        (settings.gamma, "--set gamma"),
        (by_block, config.at("block_size") + how),
        (stated.tokens, "config.json#/speculators_config/proposal_methods/0/speculative_tokens"),
    )
    return (None, None) if gamma is None or anchor is None else (gamma, gamma + less)


def _layer_ids(config: ConfigReader, log: EvidenceLog, settings: Settings) -> tuple[int, ...] | None:
    ids = config.integers("aux_hidden_state_layer_ids")
    return log.pick(
        "target_layer_ids",
        (settings.target_layer_ids, "--set target_layer_ids"),
        (tuple(item - 1 for item in ids) if ids else None, config.at("aux_hidden_state_layer_ids") + " minus one"),
        (config.integers("target_layer_ids"), config.at("target_layer_ids")),
    )


def _non_causal(log: EvidenceLog, config: ConfigReader, settings: Settings) -> bool:
    value = log.pick(
        "sliding_window_non_causal",
        (settings.sliding_window_non_causal, "--set sliding_window_non_causal"),
        (config.boolean("sliding_window_non_causal"), config.at("sliding_window_non_causal")),
    )
    return bool(value)


FORMAT = Speculators()
