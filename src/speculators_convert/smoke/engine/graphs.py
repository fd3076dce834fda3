"""Mode `graph`: fixed shapes; on CUDA the functions of a round are captured once and replayed, on a CPU they run as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from speculators_convert.errors import SmokeError
from speculators_convert.smoke.engine.decode import Accepted, Proposal, State
from speculators_convert.smoke.engine.loop import Steps
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.target import Step, Target

WARM_UP_ROUNDS = 3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Captured(Generic[_T]):
    """A captured function; its result lies in the same tensors after each replay."""

    graph: torch.cuda.CUDAGraph
    result: _T

    def replay(self) -> _T:
        """Run it on what its inputs hold now."""
        self.graph.replay()
        return self.result


def static(draft: Draft, target: Target, state: State, steps: Steps) -> Steps:
    """`steps` with the shapes of `state`, whatever a row's length; for this state and its batches only."""
    padded = pad(state, steps)
    return padded if state.ids.device.type == "cpu" else capture(draft, target, state, padded)


def pad(state: State, steps: Steps) -> Steps:
    """`steps` that read all slots of the caches: each mask is as wide as the state."""
    capacity = state.ids.shape[1]

    def propose(draft: Draft, state: State, extent: int) -> Proposal:
        del extent
        return steps.propose(draft, state, capacity)

    def verify(target: Target, state: State, tokens: Tensor, extent: int) -> Step:
        del extent
        return steps.verify(target, state, tokens, capacity)

    return replace(steps, propose=propose, verify=verify)


def capture(draft: Draft, target: Target, state: State, steps: Steps) -> Steps:
    """`steps` as CUDA graphs over `state`, which must be at rest: warm-up and capture write to its spare positions.

    A target that is not `ragged` keeps more than slots per position; its own pass stays eager.
    """
    capacity = state.ids.shape[1]
    _warm_up(draft, target, state, steps)
    try:
        proposing = _record(lambda: steps.propose(draft, state, capacity))
        if not target.ragged:
            return replace(steps, propose=lambda _draft, _state, _extent: proposing.replay())
        verifying = _record(lambda: steps.verify(target, state, proposing.result.tokens, capacity))
        accepting = _record(lambda: steps.accept(proposing.result, verifying.result.logits))
        committing = _record(lambda: steps.commit(draft, target, state, accepting.result, verifying.result.fused))
    except RuntimeError as error:
        raise SmokeError(
            f"the round cannot be captured in CUDA graphs ({str(error).splitlines()[0][:200]})",
            where=type(target.model).__name__,
            hint="run with --modes eager; the target does something on the host in each pass",
        ) from error

    def verify(_target: Target, _state: State, _tokens: Tensor, _extent: int) -> Step:
        target.passes += 1
        return verifying.replay()

    def accept(_proposal: Proposal, _logits: Tensor) -> Accepted:
        return accepting.replay()

    def commit(_draft: Draft, _target: Target, _state: State, _accepted: Accepted, _fused: Tensor) -> None:
        committing.replay()

    return Steps(prepare=steps.prepare, first=steps.first, propose=lambda _draft, _state, _extent: proposing.replay(), verify=verify, accept=accept, commit=commit)


def _warm_up(draft: Draft, target: Target, state: State, steps: Steps) -> None:
    """Whole rounds on a side stream: lazy allocations and library handles must exist before a capture."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(WARM_UP_ROUNDS):
            steps.prepare()
            proposal = steps.propose(draft, state, state.ids.shape[1])
            step = steps.verify(target, state, proposal.tokens, state.ids.shape[1])
            accepted = steps.accept(proposal, step.logits)
            steps.commit(draft, target, state, accepted, step.fused)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def _record(function: Callable[[], _T]) -> Captured[_T]:
    """`function` captured in a memory pool of its own, so that graphs may be replayed in any order."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads (NCCL's) may call CUDA meanwhile
        result = function()
    return Captured(graph, result)
