"""Readings of a file that silent failures are made of, each one fact away from what the file states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.spec import D2T, Anchor, AttentionKind, DraftSpec, known

STATED = "as stated"
DEFAULT_THETA = 10_000.0
"""What a reader takes that does not find the file's own theta (transformers' default)."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One reading; `fact` is what it changes, `says` what it takes the fact to be."""

    name: str
    fact: str
    says: str
    reading: Reading


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What the target offers: its depth, its rope theta, and its special tokens by id."""

    depth: int
    theta: float | None
    tokens: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Question:
    """The file's own reading, the facts that it leaves open, and the others to compare it with."""

    stated: Hypothesis
    open_facts: frozenset[str]
    others: tuple[Hypothesis, ...]

    @property
    def all(self) -> tuple[Hypothesis, ...]:
        """The file's reading first."""
        return (self.stated, *self.others)

    def taps(self) -> tuple[int, ...]:
        """Every layer that some reading taps."""
        return tuple(sorted({tap for item in self.all for tap in item.reading.spec.target_layer_ids or ()}))


def ask(spec: DraftSpec, block_size: int | None, target: TargetFacts) -> Question:
    """The hypotheses about `spec`; what it leaves open gets its first candidate. `block_size` counts slots where the layout is open."""
    missing, values = set[str](), dict[str, object]()
    if spec.anchor is None:
        missing.add("anchor")
        values |= {"anchor": Anchor.SAMPLED, "gamma": block_size, "query_slots": block_size}
    if spec.mask_token_id is None:
        missing.add("mask_token_id")
        values["mask_token_id"] = next(iter(target.tokens), 0)
    if spec.rope.theta is None:
        missing.add("rope_theta")
        values["rope"] = spec.rope.model_copy(update={"theta": target.theta or DEFAULT_THETA})
    base = spec.model_copy(update=values)
    stated = Hypothesis(STATED, "", describe(base), Reading(base))
    others = [*_anchor(base), *_layers(base, target), *_vocabulary(base), *_mask(base, target), *_theta(base, target), *_markov(base), *_causality(base)]
    return Question(stated, frozenset(missing), tuple(item for item in others if item.reading != stated.reading))


def describe(spec: DraftSpec) -> str:
    """The probed facts of a spec on one line."""
    layers = ", ".join(map(str, spec.target_layer_ids or ()))
    return f"anchor {spec.anchor}, gamma {spec.gamma}, outputs of layers {layers}, d2t {spec.d2t}, mask token {spec.mask_token_id}, theta {spec.rope.theta:g}"


def flip_anchor(spec: DraftSpec) -> DraftSpec:
    """The other layout with as many slots, so that gamma changes by one."""
    slots = known(spec.query_slots, "block_size")
    sampled = spec.anchor is Anchor.SAMPLED
    return spec.model_copy(update={"anchor": Anchor.BONUS if sampled else Anchor.SAMPLED, "gamma": slots - 1 if sampled else slots})


def shift_layers(spec: DraftSpec, by: int) -> DraftSpec:
    """Taps `by` layers later."""
    return spec.model_copy(update={"target_layer_ids": tuple(layer + by for layer in spec.target_layer_ids or ())})


def _anchor(spec: DraftSpec) -> Iterator[Hypothesis]:
    if known(spec.query_slots, "block_size") > 1:
        other = flip_anchor(spec)
        yield Hypothesis(f"anchor {other.anchor}", "anchor", f"anchor {other.anchor}, gamma {other.gamma}", Reading(other))


def _layers(spec: DraftSpec, target: TargetFacts) -> Iterator[Hypothesis]:
    for by in (-1, 1):
        other = shift_layers(spec, by)
        if all(-1 <= layer < target.depth for layer in other.target_layer_ids or ()):
            yield Hypothesis(f"layer ids {by:+d}", "target_layer_ids", f"outputs of layers {', '.join(map(str, other.target_layer_ids or ()))}", Reading(other))


def _vocabulary(spec: DraftSpec) -> Iterator[Hypothesis]:
    if spec.d2t is D2T.NONE:
        return
    says = {D2T.OFFSET: "target id = draft id + d2t", D2T.ABSOLUTE: "target id = d2t", D2T.NONE: "target id = draft id"}
    for kind, text in says.items():
        yield Hypothesis(f"d2t {kind}", "d2t", text, Reading(spec.model_copy(update={"d2t": kind})))


def _mask(spec: DraftSpec, target: TargetFacts) -> Iterator[Hypothesis]:
    for token, name in target.tokens.items():
        yield Hypothesis(f"mask token {name}", "mask_token_id", f"mask token {token}", Reading(spec.model_copy(update={"mask_token_id": token})))


def _theta(spec: DraftSpec, target: TargetFacts) -> Iterator[Hypothesis]:
    candidates = {"of the target": target.theta, "by default": DEFAULT_THETA}
    seen = {spec.rope.theta}
    for name, theta in candidates.items():
        if theta is not None and theta not in seen:
            seen.add(theta)
            rope = spec.rope.model_copy(update={"theta": theta})
            yield Hypothesis(f"theta {name}", "rope_theta", f"theta {theta:g}", Reading(spec.model_copy(update={"rope": rope})))


def _markov(spec: DraftSpec) -> Iterator[Hypothesis]:
    if spec.markov is not None:
        yield Hypothesis("Markov head one token late", "markov_shift", "the head sees the token before the previous one", Reading(spec, markov_lag=1))


def _causality(spec: DraftSpec) -> Iterator[Hypothesis]:
    kinds = set(spec.layer_types or ())
    if AttentionKind.SLIDING in kinds:
        other = spec.model_copy(update={"sliding_causal": not spec.sliding_causal})
        says = f"sliding layers are {'causal' if other.sliding_causal else 'bidirectional'} in the block"
        yield Hypothesis("sliding causality flipped", "in_block_causality", says, Reading(other))
    if AttentionKind.FULL in kinds:
        yield Hypothesis("causal in the block", "in_block_causality", "every layer is causal in the block", replace(Reading(spec), causal_block=True))
