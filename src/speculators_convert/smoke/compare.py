"""Claims of a run: each mode against target-only decoding, against the other modes and degrees, and against recorded outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from speculators_convert.results.smoke import Comparison, Equivalence, ModeResult, Prompt, PromptOutcome, Sampled, run_name
from speculators_convert.smoke.equivalence import judge, report

__all__ = ["Drafted", "Progress", "equal_to_each_other", "equal_to_plain", "equal_to_recorded", "judge", "lossless", "outcome", "report"]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Drafted:
    """Raw output of one mode: each prompt's tokens and accepted counts."""

    mode: str
    tp: int
    temperature: float
    dtype: str
    gamma: int
    tokens: tuple[tuple[int, ...], ...]
    accepted: tuple[tuple[int, ...], ...]
    seconds: float
    concurrency: int = 1
    server: str | None = None

    @property
    def name(self) -> str:
        """Mode and degree, as comparisons call them."""
        return run_name(self.mode, self.tp, self.concurrency, self.temperature)

    def cut(self, limits: Sequence[int]) -> Drafted:
        """The run as if prompt i had been asked for `limits[i]` tokens. Its steps end with the one that reaches the limit, whose tokens count whole, as servers count.

        Only for a run whose accepted counts are in the order of its steps, the reference engine's.
        """
        accepted = tuple(counts[: _steps_to(counts, limit)] for counts, limit in zip(self.accepted, limits, strict=True))
        return replace(self, tokens=tuple(tokens[:limit] for tokens, limit in zip(self.tokens, limits, strict=True)), accepted=accepted)

    def against(self, plain: Sequence[Sequence[int]], plain_seconds: float) -> ModeResult:
        """The mode's numbers, with outputs compared to target-only decoding."""
        outcomes = tuple(outcome(index, *pair) for index, pair in enumerate(zip(self.tokens, self.accepted, plain, strict=True)))
        counts = [count for accepted in self.accepted for count in accepted]
        steps, total = len(counts), sum(counts)
        return ModeResult(
            mode=self.mode,
            tp=self.tp,
            temperature=self.temperature,
            concurrency=self.concurrency,
            server=self.server,
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


def _steps_to(counts: Sequence[int], limit: int) -> int:
    """Steps until `limit` tokens are known; the first one comes from the prompt's own pass."""
    known = 1
    for step, count in enumerate(counts):
        if known >= limit:
            return step
        known += count + 1
    return len(counts)


def outcome(index: int, tokens: Sequence[int], accepted: Sequence[int], plain: Sequence[int]) -> PromptOutcome:
    """Token-for-token comparison of one prompt; a shorter output differs where it ends."""
    pairs = zip(tokens, plain, strict=False)
    first = next((at for at, (left, right) in enumerate(pairs) if left != right), None)
    if first is None and len(tokens) != len(plain):
        first = min(len(tokens), len(plain))
    return PromptOutcome(prompt=index, exact=first is None, first_difference=first, output_tokens=len(tokens), verify_steps=len(accepted), accepted_tokens=sum(accepted))


def equal_to_plain(item: Equivalence) -> Comparison:
    """Greedy output against target-only decoding; ties are not counted against it."""
    name, total = f"{run_name(item.mode, item.tp, item.concurrency)}: drafted greedy equals target-only greedy", item.exact + item.ties + item.defects
    return Comparison(name=name, holds=item.defects == 0, measured=f"{item.exact} exact, {item.ties} ties, {item.defects} defects", expected=f"0 defects of {total} prompts")


def lossless(item: Sampled) -> Comparison:
    """Sampled output against the target's distribution."""
    name = f"{run_name(item.mode, item.tp, item.concurrency)}: sampled tokens follow the target's distribution"
    measured = f"p = {item.p_value:.3g} over {item.tokens} tokens (Kolmogorov-Smirnov)"
    return Comparison(name=name, holds=item.p_value >= item.level, measured=measured, expected=f"p of at least {item.level}")


def equal_to_each_other(runs: Sequence[Drafted], equivalence: Sequence[Equivalence]) -> tuple[Comparison, ...]:
    """The tokens of each run after the first against the first; a greedy prompt with a tie may differ.

    Sampled runs part at any rounding, so that none is compared in bfloat16.
    """
    if len(runs) < 2 or (runs[0].temperature and runs[0].dtype != "float32"):
        return ()
    tied = {split.prompt for item in equivalence for split in item.splits if split.verdict == "tie"}
    found = []
    for run in runs[1:]:
        total = len(run.tokens)
        differ = [index for index in range(total) if run.tokens[index] != runs[0].tokens[index]]
        counts = sum(left == right for left, right in zip(run.accepted, runs[0].accepted, strict=True))
        found.append(
            Comparison(
                name=f"{run.name}: tokens equal those of {runs[0].name}",
                holds=set(differ) <= tied,
                measured=f"{total - len(differ)} of {total} prompts equal, {len(tied.intersection(differ))} ties; accepted counts equal on {counts}",
                expected=f"{total} equal or tied",
            )
        )
    return tuple(found)


def equal_to_recorded(plain: Sequence[Sequence[int]], prompts: Sequence[Prompt]) -> tuple[Comparison, ...]:
    """Target-only output against the prompt file's own continuations, where it has some."""
    outputs = zip(prompts, plain, strict=True)
    recorded = [(prompt.reference_output_ids, tokens) for prompt, tokens in outputs if prompt.reference_output_ids is not None]
    if not recorded:
        return ()
    same = sum(tuple(tokens) == reference[: len(tokens)] for reference, tokens in recorded)
    name = "target-only greedy equals the prompt file's continuations"
    return (Comparison(name=name, holds=same == len(recorded), measured=f"{same} exact", expected=f"{len(recorded)} exact"),)
