"""The target: any causal language model that transformers loads, with taps on its residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging as transformers_logging

from speculators_convert.errors import SmokeError
from speculators_convert.smoke.engine.load import Placement
from speculators_convert.smoke.engine.model import Shared
from speculators_convert.smoke.engine.target_cache import TargetCache, causal_masks
from speculators_convert.smoke.engine.target_native import NativeCache, only_attention

AnyCache = TargetCache | NativeCache
_LAYER_LISTS = ("layers", "h", "blocks")


class Step(NamedTuple):
    """One target forward: logits [B, T, target_vocab] and fused tap states [B, T, taps * H]."""

    logits: Tensor
    fused: Tensor


class Target:
    """A target and the hooks that collect the draft's input."""

    def __init__(self, model: Any, taps: Sequence[int]) -> None:
        self.model, self.taps = model, tuple(taps)
        self.config = model.config.get_text_config(decoder=True)
        self.passes = 0
        self._states: dict[int, Tensor] = {}
        self._layers = _decoder_layers(model, self.config.num_hidden_layers)
        self._windows, self._by_type = _windows(self.config)
        self.device = str(next(model.parameters()).device)
        self._hook()
        self.ragged = only_attention(model.config)
        """Rows of a batch may differ in length; otherwise requests run one at a time."""

    @property
    def shared(self) -> Shared:
        """Embedding and head weights that the draft borrows."""
        head = self.model.get_output_embeddings()
        embedding = self.model.get_input_embeddings().weight.data
        return Shared(embedding, embedding if head is None else head.weight.data)

    @property
    def vocab_size(self) -> int:
        """Rows of the head."""
        return int(self.shared.head.shape[0])

    def parameter_count(self) -> int:
        """Weights of the target."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def stop_ids(self) -> tuple[int, ...]:
        """End-of-sequence ids of the generation config, else of the config."""
        generation = getattr(self.model, "generation_config", None)
        stop = generation.eos_token_id if generation is not None else self.config.eos_token_id
        return () if stop is None else (int(stop),) if isinstance(stop, int) else tuple(int(item) for item in stop)

    def cache(self, batch: int, capacity: int) -> AnyCache:
        """An empty cache for `batch` rows of `capacity` positions; one row when the target is not `ragged`."""
        if not self.ragged:
            return NativeCache.of(self.model.config)
        return TargetCache(self.config.num_hidden_layers, batch, capacity, self.device)

    def forward(self, ids: Tensor, positions: Tensor, cache: AnyCache, extent: int, kept: Tensor | None = None) -> Step:
        """Run ids [B, T] at `positions` [B, T], each row on its own history below `extent`; logits of all T tokens, or of those that `kept` [n] lists."""
        wanted = {} if kept is None else {"logits_to_keep": kept}
        if isinstance(cache, NativeCache):
            cache.advance(ids.shape[1])
            return Step(self._run(ids, past_key_values=cache.cache, **wanted), self.fused())
        cache.aim(positions, extent)
        masks = causal_masks(positions, extent, self._windows)
        mask = masks if self._by_type else next(iter(masks.values()))
        logits = self._run(ids, attention_mask=mask, position_ids=positions, past_key_values=cache, **wanted)
        return Step(logits, self.fused())

    def settle(self, cache: AnyCache, ids: Tensor, kept: Tensor) -> None:
        """After verification of ids [B, T]: keep the first `kept` [B] tokens of each row. A slot cache needs nothing."""
        if isinstance(cache, NativeCache):
            again = cache.rewind(int(kept[0]))
            if again:
                cache.advance(again)
                self._run(ids[:, :again], past_key_values=cache.cache)

    def plain(self, ids: Tensor, cache: DynamicCache, keep: int = 1) -> Tensor:
        """Logits [B, keep, target_vocab] after the last `keep` of ids [B, T], with the model's own cache, masks and positions."""
        return self._run(ids, past_key_values=cache, logits_to_keep=keep)

    def plain_cache(self) -> DynamicCache:
        """An empty cache of the model's own kind."""
        return DynamicCache(config=self.model.config)

    def fused(self, taps: Sequence[int] | None = None) -> Tensor:
        """Tap states of the last forward, concatenated in list order [B, T, taps * H]."""
        return torch.cat([self._states[tap] for tap in (self.taps if taps is None else taps)], -1)

    def watch(self, taps: Sequence[int]) -> None:
        """Collect these taps as well from now on."""
        self.taps = tuple(dict.fromkeys((*self.taps, *taps)))
        self._hook()

    @torch.no_grad()
    def _run(self, ids: Tensor, **arguments: Any) -> Tensor:
        self.passes += 1
        logits: Tensor = self.model(input_ids=ids, use_cache=True, **arguments).logits
        return logits

    def _hook(self) -> None:
        for handle in getattr(self, "_handles", []):
            handle.remove()
        self._handles = [self._hook_one(tap) for tap in set(self.taps)]

    def _hook_one(self, tap: int) -> Any:
        if tap == -1:
            return self._layers[0].register_forward_pre_hook(self._keep_input, with_kwargs=True)
        return self._layers[tap].register_forward_hook(lambda _module, _args, output: self._keep(tap, output))

    def _keep_input(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._states[-1] = args[0] if args else kwargs["hidden_states"]

    def _keep(self, tap: int, output: Any) -> None:
        self._states[tap] = output[0] if isinstance(output, tuple) else output


def load_target(folder: Path, taps: Sequence[int], where: Placement) -> Target:
    """The model in `folder`, without remote code and without pickled weights."""
    try:
        with _quiet():
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=where.dtype, trust_remote_code=False, local_files_only=True, use_safetensors=True)
    except Exception as error:
        hint = "the target must be a causal language model that transformers knows, saved as safetensors"
        raise SmokeError(f"transformers cannot load the target ({type(error).__name__}: {' '.join(str(error).split())[:200]})", where=str(folder), hint=hint) from error
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    if not all(-1 <= tap < depth for tap in taps):
        raise SmokeError(
            "the draft taps layers that the target has not",
            where="target_layer_ids",
            measured=sorted(taps),
            expected=f"-1..{depth - 1}",
            hint="pass the target that the draft was trained for",
        )
    try:
        placed = model.to(where.device).eval()
    except RuntimeError as error:
        hint = "use a larger device, or --device cpu"
        raise SmokeError(
            f"the target cannot be put on the device ({' '.join(str(error).split())[:160]})", where=where.device, expected="room for the whole target", hint=hint
        ) from error
    return Target(placed, taps)


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and no progress bars of transformers; its settings are put back."""
    settings: Any = transformers_logging
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if bars:
            settings.enable_progress_bar()


def _decoder_layers(model: Any, depth: int) -> nn.ModuleList:
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and name.rpartition(".")[2] in _LAYER_LISTS:
            return module
    raise SmokeError("the engine does not find the decoder layers of the target", where=type(model).__name__, expected=f"a list of {depth} layers called {', '.join(_LAYER_LISTS)}")


def _windows(config: Any) -> tuple[dict[str, int | None], bool]:
    """Window per layer type, and whether the model takes one mask per type (transformers 5: those with `layer_types`)."""
    window = getattr(config, "sliding_window", None)
    if getattr(config, "layer_types", None):
        return {"full_attention": None, "sliding_attention": window}, True
    sliding = window is not None and getattr(config, "use_sliding_window", True)
    return {"full_attention": window if sliding else None}, False
