"""A small data set of MMSpec's published form, made here: the lines and their images."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

TOPICS = ("general vqa", "text vqa", "image captioning", "chart understanding", "complex reasoning pro", "multi-turn conversation")


def write_mmspec(folder: Path, *, per_topic: int) -> None:
    """`mmspec.jsonl` and `images/`: `per_topic` samples in each of the six topics, the last topic with three turns."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for index, topic in enumerate(topic for topic in TOPICS for _ in range(per_topic)):
        name = f"mmspec_{index + 1:03}"
        (folder / "images" / f"{name}.png").write_bytes(_png(64, 64, index))
        turns = [f"What is number {index}?", "And below it?", "And why?"][: 3 if topic == TOPICS[-1] else 1]
        lines.append({"id": name, "image": f"{name}.png", "turns": turns, "category": "default", "topic": topic})
    (folder / "mmspec.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _png(width: int, height: int, shade: int) -> bytes:
    """A grey picture."""
    rows = b"".join(b"\0" + bytes([shade % 256]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
