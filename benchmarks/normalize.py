"""Time and memory of `normalize` on a synthetic draft, against plain copying and against load and save with torch.

    python benchmarks/normalize.py [--gigabytes 2] [--rounds 3] [--folder DIR] [--json FILE]

Each measurement runs in a process of its own, so that its peak memory is its own. Before each one the written files of the
last are removed and synced; the source stays in the page cache for all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import numpy as np  # noqa: E402

from speculators_convert import write  # noqa: E402
from speculators_convert.checkpoint import collect  # noqa: E402
from speculators_convert.container.header import Tensor, encode, tensor_size_bytes  # noqa: E402
from speculators_convert.formats import detect  # noqa: E402
from speculators_convert.layouts import Options, find  # noqa: E402
from speculators_convert.sources import open_source  # noqa: E402
from speculators_convert.spec import Settings  # noqa: E402

VOCABULARY, DRAFT_VOCABULARY = 248_320, 32_000


def main() -> None:
    options = _options()
    if options.task:
        _print_measured(options.task, Path(options.folder))
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="spec-convert-bench-") as name:
        folder = Path(name)
        make_draft(folder / "source", options.gigabytes)
        size = sum(path.stat().st_size for path in (folder / "source").iterdir())
        rows = {task: [_in_own_process(task, folder) for _ in range(options.rounds)] for task in ("copy", "normalize", "torch")}
    result = summary(rows, size)
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")


def make_draft(folder: Path, gigabytes: float) -> None:
    """A Speculators draft with a reduced vocabulary and as many layers as the size asks for; tensors are random bytes."""
    hidden, inner, heads, kv, dim, rank = 2048, 6144, 16, 2, 128, 256
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "d2t": ("I64", (DRAFT_VOCABULARY,)),
        "lm_head.weight": ("BF16", (DRAFT_VOCABULARY, hidden)),
        "fc.weight": ("BF16", (hidden, 5 * hidden)),
        "hidden_norm.weight": ("BF16", (hidden,)),
        "norm.weight": ("BF16", (hidden,)),
        "markov_head.markov_w1.weight": ("BF16", (VOCABULARY, rank)),
        "markov_head.markov_w2.weight": ("BF16", (DRAFT_VOCABULARY, rank)),
        "confidence_head.proj.weight": ("BF16", (1, hidden + rank)),
        "confidence_head.proj.bias": ("BF16", (1,)),
    }
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (heads * dim, hidden),
        "self_attn.k_proj": (kv * dim, hidden),
        "self_attn.v_proj": (kv * dim, hidden),
        "self_attn.o_proj": (hidden, heads * dim),
        "self_attn.q_norm": (dim,),
        "self_attn.k_norm": (dim,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    count = 0
    while not count or _size(shapes) < gigabytes * 1e9:
        shapes.update({f"layers.{count}.{name}.weight": ("BF16", shape) for name, shape in layer.items()})
        count += 1
    shapes["t2d"] = ("BOOL", (VOCABULARY,))
    folder.mkdir()
    _write_weights(folder / "model.safetensors", shapes)
    backbone = {
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": count,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 262144,
        "layer_types": ["full_attention"] * count,
        "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
    }
    config = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "speculators_version": "0.9.0",
        "transformer_layer_config": backbone,
        "speculators_config": {
            "algorithm": "dspark",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}],
            "verifier": {"name_or_path": "example/target", "architectures": []},
        },
        "draft_vocab_size": DRAFT_VOCABULARY,
        "block_size": 8,
        "sample_from_anchor": True,
        "aux_hidden_state_layer_ids": [2, 10, 20, 30, 37],
        "mask_token_id": 248077,
        "markov_rank": rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _size(shapes: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    return sum(tensor_size_bytes(dtype, shape) for dtype, shape in shapes.values())


def _write_weights(path: Path, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    chosen = np.sort(np.random.default_rng(0).permutation(VOCABULARY)[:DRAFT_VOCABULARY]).astype("<i8")
    members = np.zeros(VOCABULARY, np.uint8)
    members[chosen] = 1
    tables = {"d2t": (chosen - np.arange(DRAFT_VOCABULARY)).tobytes(), "t2d": members.tobytes()}
    tensors = [Tensor(name, dtype, shape, 0, tensor_size_bytes(dtype, shape)) for name, (dtype, shape) in shapes.items()]
    with path.open("wb") as file:
        file.write(encode(tensors, {"format": "pt"}))
        for tensor in tensors:
            if tensor.name in tables:
                file.write(tables[tensor.name])
                continue
            left = tensor.size_bytes
            while left:
                block = os.urandom(min(left, 1 << 24))
                file.write(block)
                left -= len(block)
        file.flush()
        os.fsync(file.fileno())


def copy(folder: Path) -> None:
    """`cp`, fsync of the copy, one digest over it."""
    target = folder / "out"
    subprocess.run(["cp", "-r", "--reflink=never", str(folder / "source"), str(target)], check=True)
    for path in target.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    with (target / "model.safetensors").open("rb") as file:
        hashlib.file_digest(file, "sha256")


def normalize(folder: Path) -> None:
    """The rewrite with all its digests."""
    source = open_source(str(folder / "source"))
    checkpoint = collect(source)
    recognised = detect(checkpoint).format
    assert recognised is not None
    spec = recognised.read(checkpoint, Settings()).spec
    write.execute(find("speculators").plan(spec, checkpoint, Options()), source, folder / "out")


def torch(folder: Path) -> None:
    """Load and save with safetensors.torch, then the same digests: one per tensor and one over the file."""
    import torch as library  # noqa: PLC0415 (only this task may pay for it)
    from safetensors import safe_open  # noqa: PLC0415
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    target = folder / "out"
    target.mkdir()
    save_file(load_file(folder / "source" / "model.safetensors"), target / "model.safetensors", metadata={"format": "pt"})
    descriptor = os.open(target / "model.safetensors", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    with (target / "model.safetensors").open("rb") as file:
        hashlib.file_digest(file, "sha256")
    with safe_open(target / "model.safetensors", "pt") as opened:
        for name in opened.keys():  # noqa: SIM118 (safe_open is no mapping)
            hashlib.sha256(opened.get_tensor(name).flatten().view(library.uint8).numpy()).hexdigest()


TASKS = {"copy": copy, "normalize": normalize, "torch": torch}


def _print_measured(task: str, folder: Path) -> None:
    started = time.perf_counter()
    TASKS[task](folder)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}))


def peak_rss_bytes() -> int:
    """Of this process image alone; `ru_maxrss` would count the parent before exec."""
    line = next(line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _in_own_process(task: str, folder: Path) -> dict[str, float]:
    shutil.rmtree(folder / "out", ignore_errors=True)
    os.sync()
    command = [sys.executable, __file__, "--task", task, "--folder", str(folder)]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    row: dict[str, float] = json.loads(done.stdout)
    row["seconds_with_start"] = time.perf_counter() - started
    return row


def summary(rows: dict[str, list[dict[str, float]]], size_bytes: int) -> dict[str, object]:
    """Medians, and the ratios that are claimed. A process start counts for normalize and torch, not for cp."""
    seconds = {task: statistics.median(row["seconds"] for row in found) for task, found in rows.items()}
    memory = {task: max(row["peak_rss_bytes"] for row in found) for task, found in rows.items()}
    return {
        "size_bytes": size_bytes,
        "seconds": seconds,
        "peak_rss_bytes": memory,
        "normalize_to_copy": seconds["normalize"] / seconds["copy"],
        "normalize_to_torch": seconds["normalize"] / seconds["torch"],
        "torch_memory_to_normalize": memory["torch"] / memory["normalize"],
        "rows": rows,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--json")
    parser.add_argument("--task", choices=["copy", "normalize", "torch"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
