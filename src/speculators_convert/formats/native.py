"""Reads the flat packagings: one Qwen3-like config, output layer ids, draft facts at the top or in a nested table.

What differs between producers (tensor names, what an unstated anchor slot means, what `block_size` counts) comes as
`NativeRules`; each format file states its own. All spellings of a fact become evidence, so that a conflict is visible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.findings import Problem
from speculators_convert.formats.backbone import (
    MAX_LAYERS,
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
from speculators_convert.formats.places import Candidate, Places, native_places
from speculators_convert.formats.roles import resolve
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec, Settings, TensorRef, Verifier

MARKOV_TENSORS = ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight")
SINKS = ".self_attn.attention_sink_bias"
_ALIASES = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}


def native_role(name: str) -> str:
    """Role of a native tensor name. SGLang 0.5.23 reads backbone names with or without `model.`, and two vendor aliases."""
    for prefix in ("draft_model.", "model."):
        name = name.removeprefix(prefix)
    return _ALIASES.get(name, name)


@dataclass(frozen=True, slots=True)
class NativeRules:
    """How one producer's flat files are read."""

    name: str
    anchor: Anchor
    anchor_why: str
    block_is_gamma: bool
    rename: Callable[[str], str] = native_role
    disputes: tuple[tuple[Anchor, str], ...] = ()
    gamma_dispute: str = ""
    depth_key: str = "num_target_layers"
    notes: tuple[tuple[str, str, str], ...] = ()


def read_native(checkpoint: Checkpoint, settings: Settings, rules: NativeRules) -> Reading:
    """The normal form under `rules`."""
    log, config = EvidenceLog(), ConfigReader(checkpoint.config)
    places = native_places(config)
    by_role, unknown = resolve(checkpoint, rules.rename)
    tensors = Tensors(by_role)
    _algorithm(log, by_role, config, places)
    widths = read_widths(log, tensors, config, (config.integer("draft_vocab_size", minimum=1), config.at("draft_vocab_size")))
    anchor = _anchor(log, config, places, settings, rules)
    markov = read_markov(log, tensors, places, settings)
    gamma = _gamma(log, places, settings, rules, anchor)
    layer_types = _layer_types(log, config, places, widths.num_hidden_layers)
    for fact, says, source in rules.notes:
        log.note(fact, says, source)
    extra = config.sub("spec_convert")
    spec = DraftSpec(
        format=rules.name,
        anchor=anchor,
        gamma=gamma,
        query_slots=None if gamma is None else gamma + (anchor is Anchor.BONUS),
        target_layer_ids=_layer_ids(log, places, settings),
        target_vocab_size=widths.target_vocab_size,
        draft_vocab_size=widths.draft_vocab_size or widths.target_vocab_size,
        d2t=D2T.NONE,
        hidden_size=widths.hidden_size,
        target_hidden_size=config.integer("target_hidden_size", minimum=1) or widths.hidden_size,
        intermediate_size=widths.intermediate_size,
        num_hidden_layers=widths.num_hidden_layers,
        num_attention_heads=widths.num_attention_heads,
        num_key_value_heads=widths.num_key_value_heads,
        head_dim=widths.head_dim,
        rms_norm_eps=config.number("rms_norm_eps") or log.pick("rms_norm_eps_default", (1e-6, "no rms_norm_eps in the file: Qwen3Config's default")),
        hidden_act=config.string("hidden_act") or "silu",
        attention_bias=bool(config.boolean("attention_bias")),
        max_position_embeddings=read_max_position(log, config, settings),
        layer_types=layer_types,
        sliding_window=log.pick("sliding_window", (settings.sliding_window, "--set sliding_window"), *places.integers("sliding_window", "swa_window_size")),
        sliding_causal=_sliding_causal(log, config, places, settings, layer_types),
        rope=read_rope(log, config, settings),
        markov=markov,
        confidence=read_confidence(log, tensors, places, markov.rank if markov else None, widths.hidden_size),
        mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), *places.integers("mask_token_id", "dspark_noise_token_id", minimum=0)),
        dtype=read_dtype(log, tensors, config),
        tie_word_embeddings=bool(config.boolean("tie_word_embeddings")),
        verifier=Verifier(name_or_path=read_verifier(log, (extra.string("verifier"), extra.at("verifier")), settings), architectures=extra.strings("verifier_architectures")),
        num_target_layers=log.pick("num_target_layers", *places.integers(rules.depth_key)),
        producer_version=extra.string("speculators_version"),
        quantization=read_quantization(checkpoint, config),
        attention_sinks=any(name.endswith(SINKS) for name in unknown) or any(value is True for value, _ in places.booleans("attention_sink_bias")),
        tensors=by_role,
        unknown_tensors=unknown,
        evidence=tuple(log.items),
    )
    return Reading(spec, tuple(config.problems))


def has_markov(checkpoint: Checkpoint, rename: Callable[[str], str] = native_role) -> bool:
    """Whether a Markov table is among the tensors, whatever the labels say."""
    return any(rename(name) in MARKOV_TENSORS for name in checkpoint.tensors)


def has_role(checkpoint: Checkpoint, role: str) -> bool:
    """Whether a tensor has that role under native naming."""
    return any(native_role(name) == role for name in checkpoint.tensors)


def stated_ids(checkpoint: Checkpoint, *tables: str) -> bool:
    """Whether one of the nested `tables` ("" for the top level) states `target_layer_ids`."""
    config = checkpoint.config
    places = [config if name == "" else config.get(name) for name in tables]
    return any(isinstance(place, dict) and place.get("target_layer_ids") is not None for place in places)


def architectures(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The labels in `architectures`."""
    names = checkpoint.config.get("architectures")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def algorithm_of(label: str) -> str | None:
    """`dspark` or `dflash` when a label says either."""
    lowered = label.lower()
    return next((name for name in ("dspark", "dflash") if name in lowered), None)


def _algorithm(log: EvidenceLog, by_role: dict[str, TensorRef], config: ConfigReader, places: Places) -> None:
    """Tensors before labels: a Markov table makes a draft DSpark, its absence DFlash."""
    by_tensors = None if not by_role else "dspark" if any(name in by_role for name in MARKOV_TENSORS) else "dflash"
    projectors = [(algorithm_of(value or ""), source) for value, source in places.strings("projector_type")]
    labels = [(algorithm_of(label), config.at("architectures")) for label in config.strings("architectures")]
    log.pick("algorithm", (by_tensors, "markov_w1 and markov_w2 among the tensors, or not"), *projectors, *labels)


def anchor_of(sample_from_anchor: bool | None) -> Anchor | None:
    """The layout that `sample_from_anchor` states."""
    return None if sample_from_anchor is None else Anchor.SAMPLED if sample_from_anchor else Anchor.BONUS


def _anchor(log: EvidenceLog, config: ConfigReader, places: Places, settings: Settings, rules: NativeRules) -> Anchor:
    """What is stated, under each of its names; else the producer's rule, with the readings that contradict it."""
    inverted = config.boolean("dspark_bonus_anchor")
    stated: list[Candidate[bool]] = [
        (settings.sample_from_anchor, "--set sample_from_anchor"),
        *places.booleans("sample_from_anchor"),
        (None if inverted is None else not inverted, config.at("dspark_bonus_anchor") + " inverted"),
        *places.booleans("shift_label", "query_zero_predicts_next"),
    ]
    found = log.pick("anchor", *((anchor_of(value), source) for value, source in stated))
    if found is not None:
        return found
    log.pick("anchor", (rules.anchor, rules.anchor_why))
    for anchor, source in rules.disputes:
        log.note("anchor_disputed", anchor, source)
    return rules.anchor


def _gamma(log: EvidenceLog, places: Places, settings: Settings, rules: NativeRules, anchor: Anchor) -> int | None:
    """Gamma from `block_size`, which counts draft tokens or slots, as the producer does."""
    less = 0 if rules.block_is_gamma else int(anchor is Anchor.BONUS)
    how = " minus one: the anchor's slot" if less else ""
    stated = [(value - less if value and value > less else None, source + how) for value, source in places.integers("block_size", "dspark_block_size")]
    gamma = log.pick("gamma", (settings.gamma, "--set gamma"), *stated)
    if gamma is not None and less and rules.gamma_dispute and settings.gamma is None:
        log.note("gamma_disputed", gamma + less, rules.gamma_dispute)
    return gamma


def _layer_ids(log: EvidenceLog, places: Places, settings: Settings) -> tuple[int, ...] | None:
    aux = places.lists("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", shift=-1)
    return log.pick("target_layer_ids", (settings.target_layer_ids, "--set target_layer_ids"), *places.lists("target_layer_ids", "dspark_target_layer_ids"), *aux)


def _layer_types(log: EvidenceLog, config: ConfigReader, places: Places, layers: int | None) -> tuple[AttentionKind, ...] | None:
    """`layer_types`, or all layers sliding where ModelOpt's `use_swa` says so."""
    read = read_layer_types(config, layers)
    by_switch = None
    for value, source in places.booleans("use_swa"):
        if value is not None and layers is not None and layers <= MAX_LAYERS:
            by_switch = (AttentionKind.SLIDING if value else AttentionKind.FULL,) * layers
            log.pick("layer_types", *((read, config.at("layer_types")),) if config.table.get("layer_types") is not None else (), (by_switch, source))
            break
    return read if config.table.get("layer_types") is not None or by_switch is None else by_switch


def _sliding_causal(log: EvidenceLog, config: ConfigReader, places: Places, settings: Settings, layer_types: tuple[AttentionKind, ...] | None) -> bool:
    """Sliding layers are causal inside the block unless a key says otherwise (SGLang 0.5.23 and speculators agree)."""
    by_user = None if settings.sliding_window_non_causal is None else not settings.sliding_window_non_causal
    stated = places.booleans("is_causal", "causal", "dflash_query_causal")
    inverted = [(None if value is None else not value, source + " inverted") for value, source in places.booleans("sliding_window_non_causal")]
    value = log.pick("sliding_causal", (by_user, "--set sliding_window_non_causal"), *stated, *inverted)
    everywhere = next((source for flag, source in stated if flag), None)
    if everywhere and by_user is None and AttentionKind.FULL in (layer_types or ()):
        subject = everywhere.rpartition("/")[2]
        expected = "false, or sliding layers only: a full-attention layer sees its whole block"
        config.problems.append(
            Problem(
                "the full-attention layers are stated to be causal", subject=subject, measured="true", expected=expected, file=config.file, pointer=everywhere.partition("#")[2]
            )
        )
    return True if value is None else value
