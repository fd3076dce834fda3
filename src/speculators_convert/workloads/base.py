"""What a workload is: items as they were written, and requests in a target's own token ids."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from speculators_convert.model import canonical_json, sha256_hex


@dataclass(frozen=True, slots=True)
class Item:
    """One request before tokenization: text (with `chat`, one user message), or token ids that the file states."""

    name: str
    topic: str = ""
    text: str = ""
    input_ids: tuple[int, ...] = ()
    reference_output_ids: tuple[int, ...] | None = None
    image: Path | None = None
    chat: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """An image's bytes, and the type that its name states."""

    data: bytes
    kind: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes."""
        return sha256_hex(self.data)

    @property
    def uri(self) -> str:
        """The whole image as a data URI."""
        return f"data:{self.kind};base64,{b64encode(self.data).decode()}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as an engine gets it."""

    name: str
    topic: str
    input_ids: tuple[int, ...]
    reference_output_ids: tuple[int, ...] | None = None
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A request that the target has no room for."""

    name: str
    input_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in their fixed order, and those that had no room."""

    name: str
    requests: tuple[Request, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the requests as they are recorded, in order."""
        return sha256_hex(b"".join(self.lines()))

    def lines(self) -> Iterator[bytes]:
        """One canonical JSON object a line: name, topic, token ids, and the digest of the image."""
        for item in self.requests:
            image = {"image_sha256": item.image.sha256} if item.image else {}
            yield canonical_json({"name": item.name, "topic": item.topic, "input_ids": item.input_ids, **image}) + b"\n"


def per_topic(items: Iterable[Item], count: int | None) -> tuple[Item, ...]:
    """The first `count` items of each topic by the order of the file, which is kept; all without `count`."""
    if count is None:
        return tuple(items)
    seen: dict[str, int] = {}
    kept = []
    for item in items:
        seen[item.topic] = seen.get(item.topic, 0) + 1
        if seen[item.topic] <= count:
            kept.append(item)
    return tuple(kept)
