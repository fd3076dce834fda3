"""The embedded engine as a back end: drafted and target-only decoding of the same prompts, compared token for token."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from speculators_convert.errors import UsageError
from speculators_convert.smoke.equivalence import judge, report
from speculators_convert.smoke_result import Comparison, Equivalence, ModeResult, Prompt, PromptOutcome, SmokeConfig
from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, known

if TYPE_CHECKING:
    from speculators_convert.smoke.engine.model import Draft
    from speculators_convert.smoke.engine.target import Target

Progress = Callable[[int, int, str], None]
MODES = ("eager",)
SMALL_TARGET_PARAMETERS = 50_000_000


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What the engine measured."""

    modes: tuple[ModeResult, ...]
    environment: dict[str, str]
    comparisons: tuple[Comparison, ...]
    equivalence: tuple[Equivalence, ...]


class ReferenceBackend:
    """`--engine reference`."""

    name = "reference"

    def run(self, config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress) -> ReferenceRun:
        """Each mode of `config` over `prompts`, and target-only decoding once."""
        return run(config, spec, source, target, prompts, progress)


BACKEND = ReferenceBackend()


def run(config: SmokeConfig, spec: DraftSpec, source: Source, target: Path, prompts: Sequence[Prompt], progress: Progress) -> ReferenceRun:
    """Each mode of `config` over `prompts`, and target-only decoding once."""
    from speculators_convert.smoke.engine import fit, load  # noqa: PLC0415
    from speculators_convert.smoke.engine.model import Draft  # noqa: PLC0415
    from speculators_convert.smoke.engine.reading import Reading  # noqa: PLC0415
    from speculators_convert.smoke.engine.target import load_target  # noqa: PLC0415

    _demand_modes(config)
    where = load.placement(config.dtype, config.device)
    progress(0, len(prompts), "loading the target")
    base = load_target(target, known(spec.target_layer_ids, "target_layer_ids"), where)
    fit.demand_fit(spec, base)
    requests = [prompt.input_ids for prompt in prompts]
    fit.demand_prompts(requests, base, config.max_new_tokens)
    draft = Draft(Reading(spec), load.read_weights(spec, source, where), base.shared)
    with _threads(base.parameter_count() if config.device == "cpu" else None):
        plain, seconds = _plain(base, requests, config, progress)
        drafted = [_mode(draft, base, requests, config, mode, progress) for mode in config.modes]
        modes = tuple(item.against(plain, seconds) for item in drafted)
        reports = tuple(_explain(base, requests, plain, item, result) for item, result in zip(drafted, modes, strict=True))
    progress(len(requests), len(requests), "done")
    return ReferenceRun(modes, environment(config), compare(reports, plain, prompts), reports)


@dataclass(frozen=True, slots=True)
class Drafted:
    """Raw output of one mode: each prompt's tokens and accepted counts."""

    mode: str
    tp: int
    dtype: str
    gamma: int
    tokens: tuple[list[int], ...]
    accepted: tuple[list[int], ...]
    seconds: float

    def against(self, plain: Sequence[list[int]], plain_seconds: float) -> ModeResult:
        """The mode's numbers, with outputs compared to target-only decoding."""
        outcomes = tuple(outcome(index, *pair) for index, pair in enumerate(zip(self.tokens, self.accepted, plain, strict=True)))
        counts = [count for accepted in self.accepted for count in accepted]
        steps, total = len(counts), sum(counts)
        return ModeResult(
            mode=self.mode,
            tp=self.tp,
            acceptance_length=(total + steps) / steps if steps else 1.0,
            acceptance_by_position=tuple(sum(count > position for count in counts) / max(steps, 1) for position in range(self.gamma)),
            verify_steps=steps,
            drafted_tokens=steps * self.gamma,
            accepted_tokens=total,
            exact=sum(item.exact for item in outcomes),
            total=len(outcomes),
            seconds=self.seconds,
            target_only_seconds=plain_seconds,
            outcomes=outcomes,
        )


def _explain(target: Target, requests: Sequence[Sequence[int]], plain: Sequence[list[int]], drafted: Drafted, result: ModeResult) -> Equivalence:
    from speculators_convert.smoke.engine.loop import Generation  # noqa: PLC0415
    from speculators_convert.smoke.engine.splits import measure  # noqa: PLC0415

    found = []
    for item in result.outcomes:
        if item.first_difference is None:
            continue
        index, at = item.prompt, item.first_difference
        left, right = plain[index], drafted.tokens[index]
        gaps = measure(target, requests[index], left, Generation(right, drafted.accepted[index]), at, drafted.gamma + 1)
        found.append(judge(index, at, (left[at] if at < len(left) else None, right[at] if at < len(right) else None), gaps, drafted.dtype))
    return report(drafted.mode, drafted.tp, result.total, found, drafted.dtype)


def _plain(target: Target, requests: Sequence[Sequence[int]], config: SmokeConfig, progress: Progress) -> tuple[list[list[int]], float]:
    from speculators_convert.smoke.engine import loop  # noqa: PLC0415

    began, limits, outputs = time.perf_counter(), loop.Limits(config.max_new_tokens, target.stop_ids()), []
    for done, request in enumerate(requests):
        progress(done, len(requests), "target only")
        outputs.append(loop.generate_plain(target, request, limits))
    return outputs, time.perf_counter() - began


def _mode(draft: Draft, target: Target, requests: Sequence[Sequence[int]], config: SmokeConfig, mode: str, progress: Progress) -> Drafted:
    from speculators_convert.smoke.engine import loop  # noqa: PLC0415

    began, limits, runs = time.perf_counter(), loop.Limits(config.max_new_tokens, target.stop_ids()), list[loop.Generation]()
    for first in range(0, len(requests), config.batch_size):

        def watch(done: int, first: int = first) -> None:
            progress(first + done, len(requests), mode)

        runs += loop.generate(draft, target, requests[first : first + config.batch_size], limits, watch)
    return Drafted(mode, config.tp, config.dtype, draft.gamma, tuple(run.tokens for run in runs), tuple(run.accepted for run in runs), time.perf_counter() - began)


def outcome(index: int, tokens: list[int], accepted: list[int], plain: list[int]) -> PromptOutcome:
    """Token-for-token comparison of one prompt; a shorter output differs where it ends."""
    pairs = zip(tokens, plain, strict=False)
    first = next((at for at, (left, right) in enumerate(pairs) if left != right), None)
    if first is None and len(tokens) != len(plain):
        first = min(len(tokens), len(plain))
    return PromptOutcome(prompt=index, exact=first is None, first_difference=first, output_tokens=len(tokens), verify_steps=len(accepted), accepted_tokens=sum(accepted))


def compare(reports: Sequence[Equivalence], plain: Sequence[list[int]], prompts: Sequence[Prompt]) -> tuple[Comparison, ...]:
    """Drafted against target-only for each mode, and target-only against the prompt file's own continuations."""
    found = [_claim(item) for item in reports]
    outputs = zip(prompts, plain, strict=True)
    recorded = [(prompt.reference_output_ids, tokens) for prompt, tokens in outputs if prompt.reference_output_ids is not None]
    if recorded:
        same = sum(tuple(tokens) == reference[: len(tokens)] for reference, tokens in recorded)
        found.append(
            Comparison(name="target-only greedy equals the prompt file's continuations", holds=same == len(recorded), measured=f"{same} exact", expected=f"{len(recorded)} exact")
        )
    return tuple(found)


def _claim(item: Equivalence) -> Comparison:
    name, total = f"{item.mode} tp {item.tp}: drafted greedy equals target-only greedy", item.exact + item.ties + item.defects
    return Comparison(name=name, holds=item.defects == 0, measured=f"{item.exact} exact, {item.ties} ties, {item.defects} defects", expected=f"0 defects of {total} prompts")


def environment(config: SmokeConfig) -> dict[str, str]:
    """Versions and device of a run."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    device = torch.cuda.get_device_name() if config.device != "cpu" else platform.machine()
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device": f"{config.device} ({device})",
        "dtype": config.dtype,
    }


def _demand_modes(config: SmokeConfig) -> None:
    for mode in config.modes:
        if mode not in MODES:
            raise UsageError("the engine has no such mode", where="--modes", measured=mode, expected=", ".join(MODES))


@contextmanager
def _threads(parameters: int | None) -> Iterator[None]:
    """One thread while a small target runs on the CPU: its kernels are too short to share, and waiting threads cost far more."""
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    try:
        if parameters is not None and parameters < SMALL_TARGET_PARAMETERS:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
