"""DeepSpec native checkpoints: one flat config, output layer ids, full vocabulary, `block_size` is gamma.

Rules: deepseek-ai/DeepSpec (labels anchor+1 .. anchor+B, so the anchor slot is sampled when no key says otherwise);
SGLang 0.5.23 `dspark_config.py:29-31` (a top-level `sample_from_anchor` false adds a slot and leaves `block_size` gamma).
"""

from __future__ import annotations

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.backbone import Tensors, read_confidence, read_dtype, read_layer_types, read_markov, read_rope, read_widths
from speculators_convert.formats.base import ConfigReader, Reading
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.roles import resolve
from speculators_convert.spec import Anchor, D2T, DraftSpec, Settings, Verifier

NESTED = ("dspark_config", "dflash_config")


class DeepSpec:
    """The flat native layout that DeepSpec writes and SGLang and vLLM read."""

    name = "deepspec"
    title = "DeepSpec native (deepseek-ai/DeepSpec)"
    order = 60

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A flat config with `target_layer_ids` and no nested backbone."""
        config = checkpoint.config
        if "transformer_layer_config" in config or "speculators_model_type" in config or "target_layer_ids" not in config:
            return ()
        return ("config.json has target_layer_ids at the top level and no transformer_layer_config",)

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The normal form of a native checkpoint."""
        log, config = EvidenceLog(), ConfigReader(checkpoint.config)
        by_role, unknown = resolve(checkpoint)
        tensors = Tensors(by_role)
        widths = read_widths(log, tensors, config, (config.integer("draft_vocab_size", minimum=1), config.at("draft_vocab_size")))
        anchor = _anchor(log, config, settings)
        markov = read_markov(log, tensors, config, settings)
        gamma = log.pick("gamma", (settings.gamma, "--set gamma"), *_both(config, "block_size"))
        spec = DraftSpec(
            format=self.name,
            anchor=anchor,
            gamma=gamma,
            query_slots=None if gamma is None else gamma + (anchor is Anchor.BONUS),
            target_layer_ids=_layer_ids(log, config, settings),
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
            max_position_embeddings=settings.max_position_embeddings or config.integer("max_position_embeddings", minimum=1),
            layer_types=read_layer_types(config, widths.num_hidden_layers),
            sliding_window=settings.sliding_window or config.integer("sliding_window", minimum=1),
            sliding_causal=_sliding_causal(log, config, settings),
            rope=read_rope(log, config, settings),
            markov=markov,
            confidence=read_confidence(log, tensors, config, markov.rank if markov else None, widths.hidden_size),
            mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), *_both(config, "mask_token_id", minimum=0)),
            dtype=read_dtype(log, tensors, config),
            tie_word_embeddings=bool(config.boolean("tie_word_embeddings")),
            verifier=Verifier(name_or_path=settings.verifier or config.sub("spec_convert").string("verifier"), architectures=config.sub("spec_convert").strings("verifier_architectures")),
            num_target_layers=config.integer("num_target_layers", minimum=1),
            tensors=by_role,
            unknown_tensors=unknown,
            evidence=tuple(log.items),
        )
        return Reading(spec, tuple(config.problems))


def _both(config: ConfigReader, key: str, minimum: int = 1) -> list[tuple[int | None, str]]:
    readers = [config, *(config.sub(name) for name in NESTED)]
    return [(reader.integer(key, minimum=minimum), reader.at(key)) for reader in readers]


def _anchor(log: EvidenceLog, config: ConfigReader, settings: Settings) -> Anchor:
    stated = [(None if value is None else Anchor.SAMPLED if value else Anchor.BONUS, source) for value, source in ((settings.sample_from_anchor, "--set sample_from_anchor"), (config.boolean("sample_from_anchor"), config.at("sample_from_anchor")))]
    anchor = log.pick("anchor", *stated)
    return anchor or log.pick("anchor", (Anchor.SAMPLED, "format rule: DeepSpec trains slot k on the token k + 1 after the anchor")) or Anchor.SAMPLED


def _layer_ids(log: EvidenceLog, config: ConfigReader, settings: Settings) -> tuple[int, ...] | None:
    readers = [config, *(config.sub(name) for name in NESTED)]
    stated = [(reader.integers("target_layer_ids"), reader.at("target_layer_ids")) for reader in readers]
    return log.pick("target_layer_ids", (settings.target_layer_ids, "--set target_layer_ids"), *stated)


def _sliding_causal(log: EvidenceLog, config: ConfigReader, settings: Settings) -> bool:
    """SGLang's `is_causal` overrides its default (sliding layers causal inside the block)."""
    by_user = None if settings.sliding_window_non_causal is None else not settings.sliding_window_non_causal
    value = log.pick("sliding_causal", (by_user, "--set sliding_window_non_causal"), (config.boolean("is_causal"), config.at("is_causal")))
    return True if value is None else value


FORMAT = DeepSpec()
