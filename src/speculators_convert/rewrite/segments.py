"""What the files of a plan are made of: ranges of a source, given bytes, and rows that are cut, padded or chosen."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated
from typing import Literal as Kind

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from speculators_convert.model import Model

Origin = Kind["draft", "target"]
"""Which source a range is read from."""


def _decoded(value: object) -> object:
    """Base64 text as bytes; anything else as it is, for pydantic to judge."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


Raw = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(lambda value: base64.b64encode(value).decode(), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
"""Bytes, base64 in JSON."""


class Copy(Model):
    """Bytes `start..stop` of a source file, unchanged."""

    kind: Kind["copy"] = "copy"
    file: str
    start: int = Field(ge=0)
    stop: int = Field(ge=0)
    source: Origin = "draft"

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return self.stop - self.start


class Text(Model):
    """UTF-8 text."""

    kind: Kind["text"] = "text"
    text: str

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return len(self.text.encode())


class Literal(Model):
    """The given bytes, `count` times over."""

    kind: Kind["literal"] = "literal"
    data: Raw
    count: int = Field(default=1, ge=0)

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return len(self.data) * self.count


class Piece(Model):
    """Part of a row: the next `take` bytes of the source row, then `pad`."""

    take: int = Field(ge=0)
    pad: Raw = b""


class Rows(Model):
    """Rows of a source range, each cut into `pieces` with padding between, with filler rows in between.

    `runs` alternates: that many filler rows, that many source rows, and so on; the source rows are used in order, each once.
    """

    kind: Kind["rows"] = "rows"
    file: str
    start: int = Field(ge=0)
    row_bytes: int = Field(gt=0)
    pieces: tuple[Piece, ...]
    runs: tuple[int, ...]
    filler: Raw = b""
    source: Origin = "draft"

    @property
    def source_rows(self) -> int:
        """Rows read."""
        return sum(self.runs[1::2])

    @property
    def output_row_bytes(self) -> int:
        """Bytes of one written row."""
        return sum(piece.take + len(piece.pad) for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return sum(self.runs) * self.output_row_bytes

    @model_validator(mode="after")
    def _whole_rows(self) -> Rows:
        if sum(piece.take for piece in self.pieces) != self.row_bytes:
            raise ValueError("the pieces do not use each source row exactly once")
        if any(self.runs[0::2]) and len(self.filler) != self.output_row_bytes:
            raise ValueError("a filler row must be as long as an output row")
        return self


class Gather(Model):
    """Some rows of a source range: `runs` alternates rows to leave out and rows to take, in file order."""

    kind: Kind["gather"] = "gather"
    file: str
    start: int = Field(ge=0)
    row_bytes: int = Field(gt=0)
    runs: tuple[int, ...]
    source: Origin = "draft"

    @property
    def size_bytes(self) -> int:
        """Bytes written."""
        return sum(self.runs[1::2]) * self.row_bytes


Segment = Annotated[Copy | Text | Literal | Rows | Gather, Field(discriminator="kind")]
