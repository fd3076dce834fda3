"""What is decided before the first server starts: arms, order, requests, and the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from speculators_convert.errors import UsageError
from speculators_convert.model import canonical_json, sha256_hex
from speculators_convert.results.bench import PLAIN, Arm, BenchOptions, BenchPlan, SkippedRequest, Step, WorkloadRecord
from speculators_convert.results.smoke import CheckpointDigest
from speculators_convert.serving.devices import gpus
from speculators_convert.serving.versions import installed
from speculators_convert.version import __version__
from speculators_convert.workloads.base import Workload

DISTRIBUTIONS = ("sglang", "sglang-kernel", "sgl-kernel", "torch", "transformers", "flashinfer-python", "triton")
VARIABLES = ("SGLANG_", "CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET", "OMP_NUM_THREADS", "NCCL_")
"""Variables, or beginnings of their names, that steer an engine; no others are recorded."""


def make(options: BenchOptions, target: CheckpointDigest, drafts: dict[str, CheckpointDigest], workload: Workload, settings: dict[str, str]) -> BenchPlan:
    """The plan of a run on this machine; `UsageError` for names that do not fit together."""
    if len(set(options.concurrency)) < len(options.concurrency):
        raise UsageError("a concurrency stands twice", where="--concurrency", measured=", ".join(map(str, options.concurrency)), expected="each once")
    unknown = sorted(set(options.stock) - set(drafts))
    if unknown or PLAIN in drafts:
        raise UsageError("no draft has this name" if unknown else "the name is taken", where=", ".join(unknown) or PLAIN, expected=", ".join(drafts))
    arms = (Arm(name=PLAIN, draft=None), *(Arm(name=name, draft=digest, plugin=name not in options.stock) for name, digest in drafts.items()))
    skipped = tuple(SkippedRequest(name=item.name, input_tokens=item.input_tokens, reason=item.reason) for item in workload.skipped)
    return BenchPlan(
        tool_version=__version__,
        package_digest=package_digest(),
        engine=options.engine,
        target=target,
        arms=arms,
        workload=WorkloadRecord(name=workload.name, digest=workload.digest, requests=len(workload.requests), skipped=skipped),
        output_tokens=options.output_tokens,
        concurrency=options.concurrency,
        repeats=options.repeats,
        warm_up=options.warm_up,
        side_by_side=options.side_by_side,
        settings=settings,
        environment=environment(),
        steps=order([arm.name for arm in arms], options.repeats),
    )


def order(arms: Sequence[str], repeats: int) -> tuple[Step, ...]:
    """A B, B A, A B: each repeat runs the arms the other way round, so that a drift of the machine falls on all of them."""
    names = [(repeat, name) for repeat in range(repeats) for name in (arms if repeat % 2 == 0 else reversed(arms))]
    return tuple(Step(index=index, repeat=repeat, arm=name) for index, (repeat, name) in enumerate(names))


def package_digest() -> str:
    """SHA-256 over path and bytes of each Python file of this package."""
    root = Path(__file__).resolve().parent.parent
    return sha256_hex(canonical_json({path.relative_to(root).as_posix(): sha256_hex(path.read_bytes()) for path in sorted(root.rglob("*.py"))}))


def environment() -> dict[str, str]:
    """Versions, devices and variables that a result depends on."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"}
    found |= installed(DISTRIBUTIONS)
    for gpu in gpus():
        found[f"gpu {gpu.index}"] = f"{gpu.name}, driver {gpu.driver}, capability {gpu.capability}, {gpu.total_bytes} bytes"
    steering = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
    return found | {name: steering[name] for name in sorted(steering)}
