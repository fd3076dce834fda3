"""Texts and the target's own continuations of them. What is read here serves every hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from speculators_convert.errors import UsageError
from speculators_convert.probe.score import Passage, read, text_anchors
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine.target import Target

CONTINUATION_TOKENS = 64
MAX_TEXT_TOKENS = 256
CUTS = (1 / 3, 2 / 3, 1.0)
"""Where a text is cut for the target to go on."""
DISTINCT_TOKENS = 20
"""A continuation with fewer different tokens is a loop, which flatters every reading."""
ROWS = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """One text: `ids`, of which those from `output` on are the target's own, and the prompt that it belongs to."""

    prompt: int
    ids: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True)
class Material:
    """Texts to be read for the divergence, and continuations to be decoded."""

    texts: tuple[Piece, ...]
    continuations: tuple[Piece, ...]

    def __len__(self) -> int:
        return len(self.texts) + len(self.continuations)

    def read(self, target: Target, taps: Sequence[int]) -> Iterator[tuple[bool, int, Passage]]:
        """Whether it is a continuation, its prompt, and what the target sees; one pass each."""
        for kind, pieces in ((False, self.texts), (True, self.continuations)):
            for piece in pieces:
                yield kind, piece.prompt, read(target, piece.ids, piece.output, taps, logits=not kind)


def gather(target: Target, prompts: Sequence[Prompt], block: int) -> Material:
    """Lines that bring the target's continuation are decoded, lines that do not are read; with one kind only, it serves for both.

    Each continuation gets one block more than its length, so that a last step counts in full.
    """
    limit = getattr(target.config, "max_position_embeddings", None) or 1 << 30
    room = min(MAX_TEXT_TOKENS, limit - CONTINUATION_TOKENS - block)
    recorded = [(index, prompt.input_ids, prompt.reference_output_ids) for index, prompt in enumerate(prompts) if prompt.reference_output_ids]
    plain = [Piece(index, prompt.input_ids[:room], len(prompt.input_ids[:room])) for index, prompt in enumerate(prompts) if not prompt.reference_output_ids]
    plain = [piece for piece in plain if text_anchors(len(piece.ids), block + 1)]
    if recorded:
        begun = [Piece(index, (*ids, *(output or ())[:CONTINUATION_TOKENS]), len(ids)) for index, ids, output in recorded]
        begun = [piece for piece in begun if len(piece.ids) + block <= limit and len(piece.ids) > piece.output + 1]
        continuations = _extended(target, begun, 0, block)
    else:
        continuations = _continued(target, plain, block)
    texts = plain or [piece for piece in continuations if text_anchors(len(piece.ids), block + 1)]
    if not texts or not continuations:
        longest = max(len(prompt.input_ids) for prompt in prompts)
        raise UsageError("the texts are too short for a probe", where="--prompts", measured=f"at most {longest} tokens in a line", expected=f"{2 * block} or more")
    return Material(tuple(texts), continuations)


def _extended(target: Target, begun: Sequence[Piece], count: int, block: int) -> tuple[Piece, ...]:
    """The pieces with `count` more tokens, or fewer where an end token comes first, and a block after these."""
    stop, found = set(target.stop_ids()), []
    for piece, tokens in zip(begun, extend(target, [piece.ids for piece in begun], count + block), strict=True):
        end = next((index + 1 for index, token in enumerate(tokens[:count]) if token in stop), count)
        found.append(Piece(piece.prompt, (*piece.ids, *tokens[: end + block]), piece.output))
    return tuple(found)


def _continued(target: Target, texts: Sequence[Piece], block: int) -> tuple[Piece, ...]:
    """Continuations of the texts from several cuts, loops left out unless there is nothing else."""
    parts = [Piece(text.prompt, text.ids[:end], end) for text in texts for end in (max(1, int(len(text.ids) * cut)) for cut in CUTS)]
    found = _extended(target, parts, CONTINUATION_TOKENS, block)
    varied = tuple(piece for piece in found if len(set(piece.ids[piece.output : piece.output + CONTINUATION_TOKENS])) >= DISTINCT_TOKENS)
    return varied if len({piece.prompt for piece in varied}) > 1 else found


@torch.no_grad()
def extend(target: Target, texts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """`count` greedy tokens of the target after each text; an end token does not end it."""
    if not target.ragged:
        return [_extend_alone(target, text, count) for text in texts]
    return [tokens for first in range(0, len(texts), ROWS) for tokens in _extend_batch(target, texts[first : first + ROWS], count)]


def _extend_alone(target: Target, text: Sequence[int], count: int) -> list[int]:
    cache, tokens = target.plain_cache(), list[int]()
    following = torch.tensor([list(text)], device=target.device)
    for _ in range(count):
        following = target.plain(following, cache)[:, -1].argmax(-1)[:, None]
        tokens.append(int(following))
    return tokens


def _extend_batch(target: Target, texts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    longest, rows = max(len(text) for text in texts), torch.arange(len(texts), device=target.device)
    ids = torch.tensor([[*text, *([0] * (longest - len(text)))] for text in texts], device=target.device)
    length = torch.tensor([len(text) for text in texts], device=target.device)
    cache = target.cache(len(texts), longest + count)
    kept = torch.tensor(sorted({len(text) - 1 for text in texts}), device=target.device)
    logits = target.forward(ids, torch.arange(longest, device=target.device).expand(len(texts), longest), cache, longest, kept).logits
    best = logits[rows, torch.searchsorted(kept, length - 1)].argmax(-1)
    found = [best]
    for step in range(count - 1):
        best = target.forward(best[:, None], (length + step)[:, None], cache, longest + step + 1).logits[:, 0].argmax(-1)
        found.append(best)
    output: list[list[int]] = torch.stack(found, 1).tolist()
    return output
