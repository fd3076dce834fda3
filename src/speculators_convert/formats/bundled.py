"""DeepSeek-V4 bundled drafts: `mtp.N.*` tensors and `dspark_*` keys inside the target checkpoint. Read and explained only.

Rules: DeepSeek-V4-Flash/Pro configs; the number of stages is that of distinct `mtp.N.` prefixes (TensorRT-LLM pull request
15808). V4 states outputs of layers. V4.1 renames the Markov tables to `embed` and `head` and states layer inputs.
"""

from __future__ import annotations

import re

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.formats.backbone import Tensors, read_confidence, read_dtype, read_markov, read_max_position, read_quantization, read_rope, read_verifier
from speculators_convert.formats.base import ConfigReader, Reading
from speculators_convert.formats.evidence import EvidenceLog
from speculators_convert.formats.native import MARKOV_TENSORS, anchor_of, has_role
from speculators_convert.formats.places import Places
from speculators_convert.formats.roles import resolve
from speculators_convert.spec import D2T, Anchor, Bundled, DraftSpec, Settings, Verifier

_KEYS = ("dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids")
_STAGE = re.compile(r"(?:model\.)?mtp\.(\d{1,3})\.(.+)")
_ROLES = {
    "main_proj.weight": "fc.weight",
    "main_norm.weight": "hidden_norm.weight",
    "norm.weight": "norm.weight",
    "markov_head.markov_w1.weight": MARKOV_TENSORS[0],
    "markov_head.markov_w2.weight": MARKOV_TENSORS[1],
    "markov_head.embed.weight": MARKOV_TENSORS[0],
    "markov_head.head.weight": MARKOV_TENSORS[1],
    "confidence_head.proj.weight": "confidence_head.proj.weight",
    "confidence_head.proj.bias": "confidence_head.proj.bias",
}


def bundled_role(name: str) -> str:
    """Role of a stage tensor that every draft has; other tensors have none, whatever they are called."""
    stage = _STAGE.fullmatch(name)
    return _ROLES.get(stage[2], name) if stage else f"target:{name}"


class BundledDraft:
    """A draft inside its target."""

    name = "bundled"
    title = "DeepSeek-V4 bundled draft"
    order = 35

    def matches(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """A `dspark_*` key on a config that is the target's own."""
        config = checkpoint.config
        text = config.get("text_config")
        keys = [key for key in _KEYS if key in config or (isinstance(text, dict) and key in text)]
        standalone = {"transformer_layer_config", "dflash_config", "dspark_config"} & set(config)
        if not keys or standalone or has_role(checkpoint, "fc.weight"):
            return ()
        stages = _stages(checkpoint)
        return (f"config.json has {', '.join(keys)} beside the target's own keys", *((f"{len(stages)} stages mtp.N among the tensors",) if stages else ()))

    def read(self, checkpoint: Checkpoint, settings: Settings) -> Reading:
        """The draft's own facts; the target's are left out."""
        log, config = EvidenceLog(), ConfigReader(checkpoint.config)
        places = Places((config, config.sub("text_config")))
        by_role, _ = resolve(checkpoint, bundled_role)
        tensors, stages = Tensors(by_role), _stages(checkpoint)
        inputs = any(".markov_head.embed." in name for name in checkpoint.tensors)
        if inputs:
            log.pick("layer_ids_are_inputs", (True, "markov_head.embed among the tensors: DeepSeek-V4.1, which states layer inputs"))
        anchor = _anchor(log, places, settings)
        gamma = log.pick("gamma", (settings.gamma, "--set gamma"), *places.integers("dspark_block_size"))
        hidden = log.pick("hidden_size", (tensors.size("norm.weight", 0, 1), tensors.where("norm.weight")), *places.integers("hidden_size"))
        vocab = log.pick("vocab_size", (tensors.size(MARKOV_TENSORS[0], 0), tensors.where(MARKOV_TENSORS[0])), *places.integers("vocab_size"))
        markov = read_markov(log, tensors, places, settings)
        spec = DraftSpec(
            format=self.name,
            anchor=anchor,
            gamma=gamma,
            query_slots=None if gamma is None else gamma + (anchor is Anchor.BONUS),
            target_layer_ids=log.pick(
                "target_layer_ids", (settings.target_layer_ids, "--set target_layer_ids"), *places.lists("dspark_target_layer_ids", shift=-1 if inputs else 0)
            ),
            target_vocab_size=vocab,
            draft_vocab_size=log.pick("draft_vocab_size", (tensors.size(MARKOV_TENSORS[1], 0), tensors.where(MARKOV_TENSORS[1]))) or vocab,
            d2t=D2T.NONE,
            hidden_size=hidden,
            target_hidden_size=hidden,
            intermediate_size=None,
            num_hidden_layers=log.pick("num_hidden_layers", (len(stages) or None, "distinct mtp.N stages")),
            num_attention_heads=None,
            num_key_value_heads=None,
            head_dim=None,
            rms_norm_eps=config.number("rms_norm_eps"),
            hidden_act=config.string("hidden_act"),
            attention_bias=bool(config.boolean("attention_bias")),
            max_position_embeddings=read_max_position(log, config, settings),
            layer_types=None,
            sliding_window=log.pick("sliding_window", (settings.sliding_window, "--set sliding_window"), *places.integers("sliding_window")),
            sliding_causal=False,
            rope=read_rope(log, config, settings),
            markov=markov,
            confidence=read_confidence(log, tensors, places, markov.rank if markov else None, hidden),
            mask_token_id=log.pick("mask_token_id", (settings.mask_token_id, "--set mask_token_id"), *places.integers("dspark_noise_token_id", minimum=0)),
            dtype=read_dtype(log, tensors, config),
            tie_word_embeddings=bool(config.boolean("tie_word_embeddings")),
            verifier=Verifier(name_or_path=read_verifier(log, (None, ""), settings), architectures=config.strings("architectures")),
            num_target_layers=log.pick("num_target_layers", *places.integers("num_hidden_layers")),
            quantization=read_quantization(checkpoint, config),
            bundled=_bundled(checkpoint, len(stages), inputs=inputs),
            tensors=by_role,
            evidence=tuple(log.items),
        )
        return Reading(spec, tuple(config.problems))


def _stages(checkpoint: Checkpoint) -> frozenset[int]:
    return frozenset(int(stage[1]) for name in checkpoint.tensors if (stage := _STAGE.fullmatch(name)))


def _bundled(checkpoint: Checkpoint, stages: int, *, inputs: bool) -> Bundled:
    inside = [location.tensor.size_bytes for name, location in checkpoint.tensors.items() if _STAGE.fullmatch(name)]
    return Bundled(stages=stages, tensors=len(inside), tensor_bytes=sum(inside), layer_ids_are_inputs=inputs)


def _anchor(log: EvidenceLog, places: Places, settings: Settings) -> Anchor:
    stated = ((anchor_of(value), source) for value, source in [(settings.sample_from_anchor, "--set sample_from_anchor"), *places.booleans("sample_from_anchor")])
    found = log.pick("anchor", *stated)
    return found or log.pick("anchor", (Anchor.SAMPLED, "format rule: DeepSeek's bundled drafts sample the anchor slot")) or Anchor.SAMPLED


FORMAT = BundledDraft()
