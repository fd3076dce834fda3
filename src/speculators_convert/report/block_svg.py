"""The draft block as a drawing: what goes into each slot, which draft token comes out, and what the target then checks."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.report.html import Markup, element, join
from speculators_convert.report.svg import WIDTH, drawing
from speculators_convert.smoke_result import Block
from speculators_convert.spec import Anchor

_MOST = 9
"""Cells in a row; of a longer block the middle is left out."""
_CELL = WIDTH / _MOST
_ROW_TOPS = (20, 92, 164)
_TALL = 30
STYLE = """
svg .cell{fill:none;stroke:var(--soft)}svg .anchor{fill:var(--ink);stroke:var(--ink)}svg text.in-anchor{fill:var(--page)}
svg .drafted{fill:var(--fill);stroke:var(--one);stroke-width:1.5}svg .unused{fill:none;stroke:var(--soft);stroke-dasharray:3 3}
svg .arrow{stroke:var(--soft);stroke-width:1.25}
"""


def block_sentence(block: Block) -> str:
    """The drawing in words; empty when anchor or gamma is open."""
    if block.anchor is None or not _drawable(block):
        return ""
    first = (
        "slot 0 takes the anchor, the last known token, and predicts draft token 1" if _sampled(block) else "slot 0 takes the anchor, the last known token, and predicts nothing"
    )
    rest = "each later slot takes the mask token and predicts the next draft token"
    return f"One draft forward of {_slots(block)} slots: {first}; {rest}. The target then checks the anchor and the {block.gamma} draft tokens in one forward of {_checked(block)}."


def block_drawing(block: Block) -> Markup:
    """Three rows of cells: input slots, what they predict, what is verified. Nothing when anchor or gamma is open."""
    if not block_sentence(block):
        return Markup()
    slots = _slots(block)
    shift = 1 if _sampled(block) else 0
    inputs = join(_cell(place, _ROW_TOPS[0], "anchor" if slot == 0 else "mask", "anchor" if slot == 0 else "cell") for place, slot in _places(slots))
    outputs = join(_output(place, slot + shift) for place, slot in _places(slots))
    checked = join(_cell(place, _ROW_TOPS[2], "anchor" if at == 0 else str(at), "anchor" if at == 0 else "drafted") for place, at in _places(_checked(block)))
    gaps = join(_dots(top + _TALL / 2 + 4) for top, count in zip(_ROW_TOPS, (slots, slots, _checked(block)), strict=True) if count > _MOST)
    titles = (f"Draft forward, slots 0 to {slots - 1}", "predicts draft token", f"Target forward, {_checked(block)} tokens, checks")
    heads = join(element("text", words, x=2, y=top - 7, class_="soft") for words, top in zip(titles, _ROW_TOPS, strict=True))
    return drawing(WIDTH, _ROW_TOPS[2] + _TALL + 4, block_sentence(block), heads, inputs, outputs, checked, gaps)


def _drawable(block: Block) -> bool:
    return block.gamma is not None and block.gamma > 0


def _sampled(block: Block) -> bool:
    return block.anchor is Anchor.SAMPLED


def _slots(block: Block) -> int:
    return block.query_slots or (block.gamma or 0) + (0 if _sampled(block) else 1)


def _checked(block: Block) -> int:
    return (block.gamma or 0) + 1


def _places(count: int) -> Iterator[tuple[int, int]]:
    """Which item stands in which cell."""
    if count <= _MOST:
        yield from ((at, at) for at in range(count))
        return
    yield from ((at, at) for at in range(_MOST - 3))
    yield from ((at, count - _MOST + at) for at in (_MOST - 2, _MOST - 1))


def _cell(place: int, top: float, words: str, kind: str) -> Markup:
    x = place * _CELL + 1
    box = element("rect", x=x, y=top, width=_CELL - 4, height=_TALL, rx=3, class_=kind)
    words_class = "middle in-anchor" if kind == "anchor" else "middle"
    fitted = _CELL - 8 if len(words) > 5 else None
    return join(
        (box, element("text", words, x=x + (_CELL - 4) / 2, y=top + _TALL / 2 + 4, class_=words_class, textLength=fitted, lengthAdjust="spacingAndGlyphs" if fitted else None))
    )


def _output(place: int, token: int) -> Markup:
    """The arrow down from a slot, and the draft token that it predicts; slot 0 of a bonus anchor predicts none."""
    if token == 0:
        return _cell(place, _ROW_TOPS[1], "none", "unused")
    x = place * _CELL + 1 + (_CELL - 4) / 2
    y = _ROW_TOPS[0] + _TALL
    arrow = element("line", x1=x, x2=x, y1=y + 2, y2=y + 12, class_="arrow")
    return join((arrow, _cell(place, _ROW_TOPS[1], str(token), "drafted")))


def _dots(y: float) -> Markup:
    return element("text", "\N{HORIZONTAL ELLIPSIS}", x=(_MOST - 3) * _CELL + _CELL / 2, y=y, class_="middle soft")
