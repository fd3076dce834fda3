"""SHA-256 of each tensor of a draft, by role. Streams."""

from __future__ import annotations

import hashlib

from speculators_convert.sources import Source
from speculators_convert.spec import DraftSpec, TensorRef

CHUNK_BYTES = 4 * 1024 * 1024


def tensor_digests(source: Source, spec: DraftSpec) -> dict[str, str]:
    """Role to digest of the data, without header and offsets."""
    return {role: _digest(source, ref) for role, ref in sorted(spec.tensors.items())}


def _digest(source: Source, ref: TensorRef) -> str:
    digest = hashlib.sha256()
    for start in range(ref.start, ref.stop, CHUNK_BYTES):
        digest.update(source.read(ref.file, start, min(start + CHUNK_BYTES, ref.stop)))
    return digest.hexdigest()
