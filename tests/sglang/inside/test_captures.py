"""Layers that a dense Qwen3-VL target captures for a draft: SGLang's own method on objects of its own classes."""

from types import SimpleNamespace

import pytest
from sglang.srt.models.qwen3_moe import Qwen3MoeModel
from sglang.srt.models.qwen3_vl import Qwen3LLMModel, Qwen3VLForConditionalGeneration

pytestmark = pytest.mark.usefixtures("world")


def target(kind: type, *, last: bool = True) -> Qwen3VLForConditionalGeneration:
    """A target whose language model has the methods of `kind`; no weights are needed to note layers."""
    outer, inner = Qwen3VLForConditionalGeneration.__new__(Qwen3VLForConditionalGeneration), kind.__new__(kind)
    vars(outer).update(model=inner, pp_group=SimpleNamespace(is_last_rank=last), capture_aux_hidden_states=False, _parameters={}, _buffers={}, _modules={})
    vars(inner).update(layers_to_capture=[], layers=[SimpleNamespace() for _ in range(5)], _parameters={}, _buffers={}, _modules={})
    return outer


def test_a_dense_target_captures_before_the_layer_that_follows():
    outer = target(Qwen3LLMModel)
    outer.set_dflash_layers_to_capture([0, 2, 3])
    assert (outer.model.layers_to_capture, outer.capture_aux_hidden_states) == ([1, 3, 4], True)


def test_stock_ends_with_an_attribute_error():
    with pytest.raises(AttributeError, match="set_dflash_layers_to_capture"):
        Qwen3VLForConditionalGeneration.set_dflash_layers_to_capture.__wrapped__(target(Qwen3LLMModel), [0, 2])


def test_targets_with_a_method_of_their_own_keep_it():
    outer = target(Qwen3MoeModel)
    outer.set_dflash_layers_to_capture([0, 2])
    stock = target(Qwen3MoeModel)
    Qwen3VLForConditionalGeneration.set_dflash_layers_to_capture.__wrapped__(stock, [0, 2])
    assert outer.model.layers_to_capture == stock.model.layers_to_capture


def test_other_ranks_and_missing_layers_are_sglangs():
    outer = target(Qwen3LLMModel, last=False)
    outer.set_dflash_layers_to_capture([0])
    assert outer.model.layers_to_capture == []
    with pytest.raises(ValueError, match="explicit layer_ids"):
        target(Qwen3LLMModel).set_dflash_layers_to_capture(None)
