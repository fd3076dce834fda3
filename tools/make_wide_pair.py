"""The trained pair with heads of 64: `python tools/make_wide_pair.py OUT [--pair FOLDER]`.

FlashInfer has no attention kernels for the fixtures' head_dim of 32: its decode kernels are made for 64, 128, 256 and 512 only, and its
prefill kernels want four tiles of 16 over the head at least. This copies `tiny-target` and the drafts of `fixtures/trained` to OUT with
head_dim 64 and the same function; no weight is rounded, every value is one of the fixtures' own or zero.

Where a head's numbers go. The rotary pair (i, i + 16) of the 16 has the frequency theta^(-2i/32), which of 32 pairs the pair 2i has, so it
becomes (2i, 2i + 32). The other half of the head adds nothing:

- values and queries: zero rows, and zero columns of the output projection for them;
- keys: a second copy of the rows, with zeros in the norm that follows.

A query's mean square is thereby halved, so that its norm makes it sqrt 2 larger, and a key's stays as it was; attention divides their
product by sqrt 64 in place of sqrt 32, which is the same sqrt 2. Left over is the epsilon of the query's norm, which counts double.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speculators_convert.container.header import DTYPE_BITS, Tensor, encode, parse

ROOT = Path(__file__).resolve().parent.parent
TRAINED = ROOT / "fixtures" / "trained"
NARROW, WIDE = 32, 64
PLACES = np.concatenate([np.arange(0, NARROW, 2), np.arange(NARROW, WIDE, 2)])
"""Where in the wide head the numbers of the narrow one stand; PLACES + 1 is the other half."""
Array = NDArray[np.generic]


def main() -> int:
    """Write the pair and say how many tensors grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pair", type=Path, default=TRAINED, help="Folder of target and drafts, such as that of make_long_pair.py; the trained fixtures without it")
    options = parser.parse_args()
    for name, grown in write(options.out, options.pair).items():
        print(f"{options.out / name}: {grown} tensors widened")
    return 0


def write(out: Path, pair: Path = TRAINED) -> dict[str, int]:
    """Target and drafts of `pair` below `out`, which must not hold them; how many tensors of each grew."""
    grown = {}
    for folder in sorted(path for path in pair.iterdir() if path.is_dir()):
        copy = out / folder.name
        shutil.copytree(folder, copy)
        (copy / "config.json").write_text(json.dumps(_widened(json.loads((folder / "config.json").read_text())), indent=2) + "\n")
        raw, grown[folder.name] = widen((folder / "model.safetensors").read_bytes())
        (copy / "model.safetensors").write_bytes(raw)
    return grown


def _widened(value: object) -> object:
    """The document with the wide head_dim wherever it has the narrow one."""
    if isinstance(value, dict):
        return {name: WIDE if (name, item) == ("head_dim", NARROW) else _widened(item) for name, item in value.items()}
    return [_widened(item) for item in value] if isinstance(value, list) else value


def widen(raw: bytes) -> tuple[bytes, int]:
    """A safetensors file with wide heads, and how many tensors grew; order, types and metadata stay."""
    header = parse(raw, len(raw))
    entries, parts, grown = list[Tensor](), list[bytes](), 0
    for item in header.tensors:
        shape, data = item.shape, raw[item.start : item.stop]
        change = CHANGES.get(item.name.removesuffix(".weight").rpartition(".")[2])
        if change is not None:
            wide = change(np.frombuffer(data, np.dtype(f"u{DTYPE_BITS[item.dtype] // 8}")).reshape(shape))
            shape, data, grown = wide.shape, wide.tobytes(), grown + 1
        entries.append(Tensor(item.name, item.dtype, shape, 0, len(data)))
        parts.append(data)
    return encode(entries, header.metadata) + b"".join(parts), grown


def _spread(narrow: Array, *, twice: bool = False) -> Array:
    """Rows [heads * 32, ...] to [heads * 64, ...], the bits as they are; the other half is zeros, or with `twice` the same rows."""
    heads = narrow.shape[0] // NARROW
    wide = np.zeros((heads, WIDE, math.prod(narrow.shape[1:])), narrow.dtype)
    wide[:, PLACES] = narrow.reshape(heads, NARROW, -1)
    if twice:
        wide[:, PLACES + 1] = wide[:, PLACES]
    return wide.reshape(heads * WIDE, *narrow.shape[1:])


CHANGES: dict[str, Callable[[Array], Array]] = {
    "q_proj": _spread,
    "k_proj": lambda narrow: _spread(narrow, twice=True),
    "v_proj": _spread,
    "o_proj": lambda narrow: _spread(narrow.T).T,
    "q_norm": _spread,
    "k_norm": _spread,
}
"""How the weight of each module of an attention grows."""


if __name__ == "__main__":
    sys.exit(main())
