"""Markov heads: the bias that the previous token adds to a slot's logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from speculators_convert.errors import SmokeError
from speculators_convert.spec import ConfidenceHead, DraftSpec, MarkovKind, known


class Bias(NamedTuple):
    """Bias [B, draft_vocab] of one slot and the recurrent state [B, rank] after it."""

    logits: Tensor
    state: Tensor | None


class NoMarkov:
    """A draft without a Markov head."""

    def start(self, batch: int) -> None:
        """No state."""

    def bias(self, hidden: Tensor, previous: Tensor, state: Tensor | None) -> Bias:  # noqa: ARG002
        """Zero [1], which adds to logits of any shape."""
        return Bias(hidden.new_zeros(1), state)


class Vanilla:
    """`W2 W1[previous]`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._w1, self._w2 = weights["markov_head.markov_w1.weight"], weights["markov_head.markov_w2.weight"]

    def start(self, batch: int) -> Tensor | None:
        """Recurrent state before slot 0."""
        del batch
        return None

    def bias(self, hidden: Tensor, previous: Tensor, state: Tensor | None) -> Bias:
        """Bias after hidden [B, H] (final norm) and target-vocabulary ids `previous` [B]."""
        mixed, state = self.mix(hidden, functional.embedding(previous, self._w1), state)
        return Bias(functional.linear(mixed, self._w2), state)

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What `markov_w2` multiplies, [B, rank], and the next state."""
        del hidden
        return embedded, state


class Gated(Vanilla):
    """`W2 (sigmoid(gate_proj [h; W1[previous]]) * W1[previous])`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self._gate, self._shift = weights["markov_head.gate_proj.weight"], weights.get("markov_head.gate_proj.bias")

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Gated embedding."""
        return functional.linear(torch.cat((hidden, embedded), -1), self._gate, self._shift).sigmoid() * embedded, state


class Rnn(Vanilla):
    """A gated recurrence over the block; the state starts at zero and slot 0 advances it in both layouts."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self._joint, self._shift = weights["markov_head.joint_proj.weight"], weights.get("markov_head.joint_proj.bias")

    def start(self, batch: int) -> Tensor | None:
        """Zeros [B, rank]."""
        return self._w1.new_zeros(batch, self._w1.shape[1])

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`tanh(out)` and the advanced state."""
        memory = embedded.new_zeros(embedded.shape) if state is None else state
        gate, candidate, out = functional.linear(torch.cat((memory, embedded, hidden), -1), self._joint, self._shift).chunk(3, -1)
        gate = gate.sigmoid()
        return out.tanh(), gate * memory + (1 - gate) * candidate.tanh()


Markov = NoMarkov | Vanilla
_HEADS = {MarkovKind.VANILLA: Vanilla, MarkovKind.GATED: Gated, MarkovKind.RNN: Rnn}


def markov_head(spec: DraftSpec, weights: Mapping[str, Tensor]) -> Markov:
    """The Markov head that the spec names, over `weights`."""
    if spec.markov is None:
        return NoMarkov()
    try:
        return _HEADS[known(spec.markov.kind, "markov_head_type")](weights)
    except KeyError as missing:
        raise SmokeError("a tensor of the Markov head is missing", where=str(missing.args[0]), measured="missing", expected="present") from missing


class Confidence:
    """Logit that a slot's token will be accepted: `proj [h; W1[previous]]`, before the sigmoid."""

    def __init__(self, head: ConfidenceHead, weights: Mapping[str, Tensor]) -> None:
        self._weight, self._bias = weights["confidence_head.proj.weight"], weights.get("confidence_head.proj.bias")
        self._w1 = weights["markov_head.markov_w1.weight"] if head.with_markov else None

    def logit(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """[...] from hidden [..., H] and target-vocabulary ids `previous` [...]."""
        features = hidden if self._w1 is None else torch.cat((hidden, functional.embedding(previous, self._w1)), -1)
        return functional.linear(features, self._weight, self._bias).squeeze(-1)
