"""`/flush_cache` beside captured draft graphs: all logical state is cleared, device memory stays mapped.

A captured graph reads addresses that its capture saw. SGLang ends a flush with `empty_cache`, which gives unused segments
of the allocator back to the driver, whether or not a graph was captured over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def keep_allocations(original: Callable[..., bool], scheduler: Any, empty_cache: bool = True) -> bool:
    """Flush as SGLang does; false when requests are running, as there."""
    return original(scheduler, empty_cache=empty_cache and not captured_draft(scheduler))


def captured_draft(scheduler: Any) -> bool:
    """Whether this process replays graphs of a DSpark draft."""
    runner = getattr(scheduler.draft_worker, "draft_model_runner", None) if scheduler.spec_algorithm.is_dspark() else None
    graph = getattr(runner, "decode_cuda_graph_runner", None)
    return graph is not None and graph is not getattr(runner, "eager_runner", None)
