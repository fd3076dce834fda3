"""Which attention back ends can verify packed requests of different lengths: said for each, and refused where it does not hold.

SGLang asks a back end only before it replays a graph. Without a graph it runs any back end, and one that knows rows of
equal length alone (Triton, for example) then reads other requests' tokens, with no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speculators_convert.errors import RefusedError

EAGER_ONLY = frozenset({"FlashInferAttnBackend"})
"""Reads packed lengths outside graphs; SGLang itself refuses it with graphs."""


def declare(result: None, backend: Any, *_: Any, **__: Any) -> None:
    """Say for a GDN back end whether `ragged_linear` holds for it: draft chains whose states are kept for each step."""
    del result
    backend.supports_ragged_verify_graph = not keeps_rings(backend) and int(getattr(backend, "topk", 1) or 1) <= 1


def keeps_rings(backend: Any) -> bool:
    """Whether states are rebuilt from rings of inputs (`--enable-linear-replayssm`), which were not tried with packed requests."""
    pool = backend.req_to_token_pool.mamba_pool
    return any(getattr(pool.mamba_cache, name, None) is not None for name in ("replayssm_d", "replayssm_rawv"))


def require(result: None, worker: Any, *_: Any, **__: Any) -> None:
    """Refuse, before a graph is captured or a request served, when a layer of the target cannot verify packed requests."""
    del result
    planner = getattr(worker, "_verify_planner", None)
    if planner is None or not planner.is_compact_mode:
        return
    problems = list(_problems(worker.model_runner.attn_backend, varied=not planner.is_verify_all))
    if problems:
        raise RefusedError(
            "the target's attention cannot verify requests of different lengths",
            where="SGLANG_RAGGED_VERIFY_MODE=compact",
            measured=", ".join(problems),
            expected="fa3, fa4, flashinfer without graphs, trtllm_mha or MLA; of linear attention GDN and KDA",
            hint="choose another --attention-backend, or SGLANG_RAGGED_VERIFY_MODE=static",
        )


def _problems(backend: Any, *, varied: bool) -> Iterator[str]:
    """Back ends that cannot; `varied` is false while each request verifies all its tokens, which any softmax attention can."""
    linear = getattr(backend, "linear_attn_backend", None)
    full = backend if linear is None else backend.full_attn_backend
    if varied and not full.supports_ragged_verify_graph and type(full).__name__ not in EAGER_ONLY:
        yield type(full).__name__
    if linear is not None and not linear.supports_ragged_verify_graph:
        yield type(linear).__name__
