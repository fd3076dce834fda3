"""Compact verification is refused at start where an attention back end does not know packed requests; SGLang's own classes are asked."""

from types import SimpleNamespace

import pytest
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.attention.flashattention_backend import FlashAttentionBackend
from sglang.srt.layers.attention.hybrid_linear_attn_backend import Mamba2AttnBackend
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

from speculators_convert.errors import RefusedError
from speculators_convert.sglang_plugin import conditions, hooks, ragged_support, release

pytestmark = pytest.mark.usefixtures("world")


def bare(kind: type, **attributes: object) -> AttentionBackend:
    """An instance that answers from its class, without the memory that building one takes."""
    backend = kind.__new__(kind)
    vars(backend).update(attributes)
    return backend


class FlashInferAttnBackend(AttentionBackend):
    """SGLang's class of this name cannot be imported without a GPU; only its name and its inherited answer count."""


def worker(full: AttentionBackend, linear: AttentionBackend | None = None, *, compact: bool = True, verify_all: bool = False) -> SimpleNamespace:
    backend = full if linear is None else SimpleNamespace(full_attn_backend=full, linear_attn_backend=linear)
    return SimpleNamespace(_verify_planner=SimpleNamespace(is_compact_mode=compact, is_verify_all=verify_all), model_runner=SimpleNamespace(attn_backend=backend))


GDN = bare(AttentionBackend, supports_ragged_verify_graph=True)


@pytest.mark.parametrize(
    ("full", "linear", "named"),
    [(TritonAttnBackend, None, "TritonAttnBackend"), (FlashAttentionBackend, bare(Mamba2AttnBackend), "Mamba2AttnBackend"), (TritonAttnBackend, GDN, "TritonAttnBackend")],
)
def test_unaware_back_ends_are_refused_by_name(full, linear, named):
    with pytest.raises(RefusedError, match=named):
        ragged_support.require(None, worker(bare(full), linear))


@pytest.mark.parametrize("full", [FlashAttentionBackend, FlashInferAttnBackend])
@pytest.mark.parametrize("linear", [None, GDN])
def test_aware_back_ends_are_served(full, linear):
    ragged_support.require(None, worker(bare(full), linear))


def test_other_modes_are_left_alone():
    ragged_support.require(None, worker(bare(TritonAttnBackend), compact=False))
    ragged_support.require(None, SimpleNamespace())


def test_rows_of_equal_length_are_within_what_every_softmax_attention_can():
    ragged_support.require(None, worker(bare(TritonAttnBackend), verify_all=True))
    with pytest.raises(RefusedError, match="Mamba2AttnBackend"):
        ragged_support.require(None, worker(bare(TritonAttnBackend), bare(Mamba2AttnBackend), verify_all=True))


def test_stock_asks_nobody_without_a_graph():
    """The answers that SGLang's classes give are there; nothing reads them for an eager step."""
    assert not TritonAttnBackend.supports_ragged_verify_graph
    assert not Mamba2AttnBackend.supports_ragged_verify_graph


def test_rings_of_inputs_are_not_supported():
    def backend(**cache):
        return SimpleNamespace(req_to_token_pool=SimpleNamespace(mamba_pool=SimpleNamespace(mamba_cache=SimpleNamespace(**cache))), topk=1)

    for cache, supported in (({}, True), ({"replayssm_d": object()}, False), ({"replayssm_rawv": object()}, False)):
        found = backend(**cache)
        ragged_support.declare(None, found)
        assert found.supports_ragged_verify_graph is supported


def test_a_hook_is_needed_in_its_mode_only(monkeypatch):
    hook = next(item for item in hooks.HOOKS if item.function == "ragged_rope:spec_positions")
    monkeypatch.setenv("SGLANG_RAGGED_VERIFY_MODE", "static")
    assert (hooks.liveness(hook).live, hooks.liveness(hook).needed) == (True, False)
    monkeypatch.setenv("SGLANG_RAGGED_VERIFY_MODE", "compact")
    assert hooks.liveness(hook).needed
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.5")
    assert conditions.simulated()
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "none")
    assert not conditions.simulated()


def test_a_broken_hook_refuses_only_where_it_is_needed(monkeypatch):
    hook = hooks.Hook(
        "sglang.srt.managers.scheduler.Scheduler.flush_cache", "AROUND", "flush:keep_allocations", ("self", "other"), "a change of signature", when=conditions.compact
    )
    monkeypatch.setattr(hooks, "HOOKS", (hook,))
    monkeypatch.setenv("SGLANG_RAGGED_VERIFY_MODE", "static")
    assert hooks.install() is None
    monkeypatch.setenv("SGLANG_RAGGED_VERIFY_MODE", "compact")
    assert "flush_cache takes (self, empty_cache), expected (self, other)" in hooks.install()


def test_a_release_that_has_the_change_switches_the_hook_off():
    stated = {"target": "sglang.srt.no_such_module.function", "kind": "AROUND", "function": "flush:keep_allocations", "parameters": (), "purpose": ""}
    gone, kept = hooks.Hook(**stated, until="0.5.23"), hooks.Hook(**stated, until="0.5.24")
    assert (hooks.liveness(gone).needed, hooks.liveness(gone).problem) == (False, "SGLang has its change since 0.5.23")
    assert hooks.liveness(kept).needed
    assert [release.has("0.5.24", found) for found in ("0.5.23", "0.5.24rc1", "0.5.24", "0.6.0")] == [False, True, True, True]
    assert not release.has("", "9.9")
