"""The draft model: SGLang's DSpark draft, with its own head and Markov head over a reduced vocabulary when the draft has one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.models.dspark import DSparkDraftModel, RNNHead, gather_and_crop_vocab, project_through_lm_head
from sglang.srt.runtime_context import get_parallel
from torch import Tensor

from speculators_convert.errors import RefusedError
from speculators_convert.rewrite.rank_manifest import SPLIT_ROLES
from speculators_convert.sglang_plugin import hooks
from speculators_convert.sglang_plugin.markov import reduced_head
from speculators_convert.sglang_plugin.rank_rows import is_split, open_rank_files

_LOG = logging.getLogger(__name__)
_METADATA = ("t2d",)
"""Read by the checks only: decoding needs the other direction."""
_SHARED = ("embed_tokens.weight", "lm_head.weight")
"""The target's, whatever the draft's file holds; a reduced draft has its own head."""
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"), "draft_lm_head": ("lm_head",)}


class SpeculatorsDSparkModel(DSparkDraftModel):  # type: ignore[misc]
    """A Speculators DSpark draft. With the target's whole vocabulary, all computation is SGLang's own."""

    def __init__(self, config: Any, quant_config: Any = None, prefix: str = "") -> None:
        hooks.require_live()
        super().__init__(config=config, quant_config=quant_config, prefix=prefix)
        if not config.enable_confidence_head:
            self.confidence_head = None
        _widen_windows(self.layers, self.gamma if self.sample_from_anchor else self.gamma + 1)
        self.complete = False
        """All weights were loaded once; an update at run time may bring some of them only."""
        self.draft_lm_head: ParallelLMHead | None = None
        self.takes_target_embedding = self.uses_own_vocab_modules = int(config.draft_vocab_size) != int(config.vocab_size)
        if self.takes_target_embedding:
            self.draft_lm_head = ParallelLMHead(int(config.draft_vocab_size), int(config.hidden_size))
            self.markov_head = reduced_head(config, self.draft_lm_head)
        self.markov_head.starts_at_anchor = isinstance(self.markov_head, RNNHead) and not self.sample_from_anchor

    def attach_shared_modules(self, *, embed_tokens: Any, lm_head: Any) -> None:
        """Keep the target's embedding and head; the head of another vocabulary means another target."""
        expected = int(self.config.vocab_size)
        if int(lm_head.org_vocab_size) != expected:
            raise RefusedError("the draft was made for another target vocabulary", where="target lm_head", measured=int(lm_head.org_vocab_size), expected=expected)
        super().attach_shared_modules(embed_tokens=embed_tokens, lm_head=lm_head)

    def compute_base_logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of `hidden` [T, H] through the draft's own head, [T, draft_vocab] or this rank's rows of it, and `hidden`."""
        if self.draft_lm_head is None:
            return super().compute_base_logits(hidden)  # type: ignore[no-any-return]
        logits = project_through_lm_head(hidden, self.draft_lm_head)
        if self.markov_head.vocab_shard is None:
            logits = gather_and_crop_vocab(logits, self.draft_lm_head)
        return logits, hidden

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load each tensor, or refuse: SGLang would skip what it does not know and keep noise for what is missing."""
        expected = set(_checkpoint_names(self))
        seen: set[str] = set()

        def own(items: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in items:
                seen.add(name)
                if not self._load_vocabulary(name, tensor):
                    yield name, tensor

        super().load_weights(own(weights))
        seen |= self._load_rank_rows(expected - seen)
        unknown = sorted(name for name in seen - expected if not self._may_skip(name))
        missing = [] if self.complete else sorted(expected - seen)
        if unknown or missing:
            raise RefusedError(
                "the draft's tensors are not those of its config",
                where=", ".join((unknown + missing)[:5]),
                measured=f"{len(missing)} missing, {len(unknown)} unknown",
                expected="each tensor once",
            )
        self.complete = True

    def _load_rank_rows(self, absent: set[str]) -> set[str]:
        """Take this rank's rows of heads that lie in rank files; the names that were there."""
        folder = Path(self.config._name_or_path)
        names = [name for name in SPLIT_ROLES if name in absent]
        if not names or not is_split(folder):
            return set()
        head = self.draft_lm_head
        rows = (0, int(self.config.vocab_size)) if head is None else (int(head.shard_indices.org_vocab_start_index), int(head.shard_indices.org_vocab_end_index))
        files = open_rank_files(folder)
        for name in names:
            tensor = files.read(name, *rows)
            parameter = head.weight if head is not None and name == "lm_head.weight" else self.markov_head.markov_w2.weight
            parameter.data[: tensor.shape[0]].copy_(tensor)
            parameter.data[tensor.shape[0] :].zero_()
        _LOG.info(
            "DSpark rank %d read rows %d to %d of %d from rank files, of %s: %d bytes of %d, and %d bytes of headers",
            get_parallel().tp_rank, *rows, int(self.config.draft_vocab_size), " and ".join(names), files.row_bytes, sum(map(files.size_bytes, names)), files.header_bytes,
        )  # fmt: skip
        return set(names)

    def _load_vocabulary(self, name: str, tensor: Tensor) -> bool:
        """Take the head and the mapping of a reduced draft; false for every other tensor."""
        if self.draft_lm_head is None or name not in ("lm_head.weight", "d2t"):
            return False
        if name == "lm_head.weight":
            self.draft_lm_head.weight_loader(self.draft_lm_head.weight, tensor)
            return True
        targets = torch.arange(tensor.numel()) + tensor.cpu().long()
        if targets.shape != self.markov_head.targets.shape or int(targets.min()) < 0 or int(targets.max()) >= self.markov_head.vocab_size:
            raise RefusedError(
                "the mapping leaves the target vocabulary",
                where="d2t",
                measured=f"{targets.numel()} ids, {int(targets.min())} to {int(targets.max())}",
                expected=f"{self.markov_head.targets.numel()} ids, 0 to {self.markov_head.vocab_size - 1}",
            )
        self.markov_head.targets.copy_(targets)
        return True

    def _may_skip(self, name: str) -> bool:
        if name in _METADATA or name.startswith("confidence_head."):
            return True
        return (name in _SHARED and self.draft_lm_head is None) or name == "embed_tokens.weight"


def _widen_windows(layers: Iterable[Any], slots: int) -> None:
    """Let each slot of a block reach what the anchor reaches: in training the window is counted from the anchor.

    SGLang's Triton back end first cuts the context to the model's window, which stays, and then counts from each slot; with
    this it gives the trained view. FlashAttention only counts from each slot: there, early slots see up to slots - 1 older tokens.
    """
    for layer in layers:
        attention = layer.self_attn.attn
        if attention.sliding_window_size > -1:
            attention.sliding_window_size += slots - 1


def _checkpoint_names(model: SpeculatorsDSparkModel) -> Iterator[str]:
    """Names under which a checkpoint holds the model's parameters."""
    for name, _ in model.named_parameters():
        if name.startswith(("embed_tokens.", "lm_head.")):
            continue
        fused = next((part for part in _FUSED if f".{part}." in f".{name}"), None)
        yield from [name] if fused is None else [name.replace(fused, part) for part in _FUSED[fused]]
    if model.draft_lm_head is not None:
        yield "d2t"


EntryClass = SpeculatorsDSparkModel
