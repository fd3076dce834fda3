"""The draft block as a drawing: what goes into each slot, which draft token comes out, and what the target then checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculators_convert.report.html import Markup, element, join
from speculators_convert.report.svg import WIDTH, drawing
from speculators_convert.results.smoke import Block
from speculators_convert.spec import Anchor

_MOST = 9
"""Cells in a row; of a longer row the middle is left out."""
_WIDEST, _TALL, _GAP = 52.0, 30, 4
_INPUT, _OUTPUT, _CHECKED = 20, 102, 172
STYLE = """
svg .cell{fill:none;stroke:var(--soft)}svg .anchor{fill:var(--ink);stroke:var(--ink)}svg text.in-anchor{fill:var(--page)}
svg .drafted{fill:var(--fill);stroke:var(--one);stroke-width:1.5}svg .unused{fill:none;stroke:var(--soft);stroke-dasharray:3 3}
svg .arrow{stroke:var(--soft);stroke-width:1.25}
"""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The block in plain numbers."""

    gamma: int
    slots: int
    sampled: bool

    @property
    def checked(self) -> int:
        """Tokens of one target forward."""
        return self.gamma + 1

    @property
    def cell(self) -> float:
        """Width of a cell with the gap after it."""
        return min(WIDTH / min(self.checked, _MOST), _WIDEST)


def block_sentence(block: Block) -> str:
    """The drawing in words; empty when anchor or gamma is open."""
    shape = _shape(block)
    if shape is None:
        return ""
    first = "slot 0 takes the anchor, the last known token, and predicts " + ("draft token 1" if shape.sampled else "nothing")
    rest = "each later slot takes the mask token and predicts the next draft token"
    return f"One draft forward of {shape.slots} slots: {first}; {rest}. The target then checks the anchor and the {shape.gamma} draft tokens in one forward of {shape.checked}."


def block_drawing(block: Block) -> Markup:
    """Three rows of cells: input slots, what they predict, what is checked. Nothing when anchor or gamma is open."""
    shape = _shape(block)
    if shape is None:
        return Markup()
    rows = (
        _heading(_INPUT, f"Draft forward, slots 0 to {shape.slots - 1}"),
        *(_box(shape, place, _INPUT, "mask" if slot else "anchor", "cell" if slot else "anchor") for place, slot in _places(shape.slots)),
        _heading(_OUTPUT, "predicts draft token"),
        *(_output(shape, place, slot + shape.sampled) for place, slot in _places(shape.slots)),
        _heading(_CHECKED, f"Target forward, checks {shape.checked} tokens"),
        *(_box(shape, place, _CHECKED, str(at) if at else "anchor", "drafted" if at else "anchor") for place, at in _places(shape.checked)),
        *(_dots(shape, top) for top, count in ((_INPUT, shape.slots), (_OUTPUT, shape.slots), (_CHECKED, shape.checked)) if count > _MOST),
    )
    return drawing(WIDTH, _CHECKED + _TALL + 2, block_sentence(block), *rows)


def _shape(block: Block) -> _Shape | None:
    """None when the block cannot be drawn."""
    if block.anchor is None or block.gamma is None or block.gamma < 1:
        return None
    sampled = block.anchor is Anchor.SAMPLED
    return _Shape(gamma=block.gamma, slots=block.query_slots or block.gamma + (not sampled), sampled=sampled)


def _places(count: int) -> Iterator[tuple[int, int]]:
    """Which item stands in which cell."""
    if count <= _MOST:
        yield from ((at, at) for at in range(count))
        return
    yield from ((at, at) for at in range(_MOST - 3))
    yield from ((at, count - _MOST + at) for at in (_MOST - 2, _MOST - 1))


def _heading(top: float, words: str) -> Markup:
    return element("text", words, x=1, y=top - 7, class_="soft")


def _box(shape: _Shape, place: int, top: float, words: str, kind: str) -> Markup:
    x, width = place * shape.cell + 1, shape.cell - _GAP
    fitted = width - 5 if len(words) * 7 > width else None
    label = element(
        "text", words, x=x + width / 2, y=top + _TALL / 2 + 4, class_="middle in-anchor" if kind == "anchor" else "middle",
        textLength=fitted, lengthAdjust="spacingAndGlyphs" if fitted else None,
    )  # fmt: skip
    return join((element("rect", x=x, y=top, width=width, height=_TALL, rx=3, class_=kind), label))


def _output(shape: _Shape, place: int, token: int) -> Markup:
    """The arrow down from a slot, and the draft token that it predicts; slot 0 of a bonus anchor predicts none."""
    if token == 0:
        return _box(shape, place, _OUTPUT, "none", "unused")
    x = place * shape.cell + 1 + (shape.cell - _GAP) / 2
    arrow = element("line", x1=x, x2=x, y1=_INPUT + _TALL + 2, y2=_OUTPUT - 25, class_="arrow")
    point = element("path", d=f"M{x - 3:.1f} {_OUTPUT - 29}l3 4l3 -4", class_="arrow")
    return join((arrow, point, _box(shape, place, _OUTPUT, str(token), "drafted")))


def _dots(shape: _Shape, top: float) -> Markup:
    return element("text", "\N{HORIZONTAL ELLIPSIS}", x=(_MOST - 2.5) * shape.cell, y=top + _TALL / 2 + 4, class_="middle soft")
