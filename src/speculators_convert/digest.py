"""The digest that names a draft's bytes: its config, its index and its weight files, nothing else."""

from __future__ import annotations

import hashlib

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.container.index import INDEX_NAME
from speculators_convert.model import canonical_json, sha256_hex
from speculators_convert.results.smoke import CheckpointDigest
from speculators_convert.sources import Source

CHUNK_BYTES = 4 * 1024 * 1024


def checkpoint_digest(source: Source, checkpoint: Checkpoint) -> CheckpointDigest:
    """SHA-256 per file that defines the checkpoint, and one over the canonical JSON of that table. Reads each file once."""
    names = sorted({"config.json", INDEX_NAME, *checkpoint.headers} & {info.path for info in checkpoint.files if not info.refused})
    files = {name: _file_digest(source, name, info.size_bytes) for name in names if (info := checkpoint.file(name))}
    return CheckpointDigest(digest=sha256_hex(canonical_json(files)), files=files, reference=source.id.name)


def _file_digest(source: Source, path: str, size_bytes: int) -> str:
    digest = hashlib.sha256()
    for start in range(0, size_bytes, CHUNK_BYTES):
        digest.update(source.read(path, start, min(start + CHUNK_BYTES, size_bytes)))
    return digest.hexdigest()
