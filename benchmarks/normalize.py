"""Time and memory of `normalize` on a synthetic draft, against plain copying and against load and save with torch.

    python benchmarks/normalize.py [--gigabytes 2] [--rounds 3] [--folder DIR] [--json FILE]

Tasks: `copy` (cp, fsync, one digest) and `torch` (load, save, the same digests) are the measures for `normalize`;
`copy-output` (cp, fsync, one digest of each output file) is run after `dense` (layout sglang-dense, the comparison of all
head rows included) and `ranks` (heads split over 8 ranks) on what they wrote. Each runs in a process of its own, so that
its peak memory is its own; the tasks take turns, so that a busy machine is busy for all of them. Written files of the run
before are removed and synced first; the source stays in the page cache.
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
from collections.abc import Callable
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import numpy as np  # noqa: E402

from speculators_convert.checkpoint import collect  # noqa: E402
from speculators_convert.container.header import Tensor, encode, tensor_size_bytes  # noqa: E402
from speculators_convert.formats import detect  # noqa: E402
from speculators_convert.layouts import Options, find  # noqa: E402
from speculators_convert.sources import open_source  # noqa: E402
from speculators_convert.spec import D2T, Settings  # noqa: E402
from speculators_convert.target.pairing import collect_pairing  # noqa: E402
from speculators_convert.target.vocabulary import read_tables  # noqa: E402
from speculators_convert.write.execution import execute  # noqa: E402
from speculators_convert.write.prepare import gather  # noqa: E402

VOCABULARY, DRAFT_VOCABULARY = 248_320, 32_000


def main() -> None:
    options = _options()
    if options.task:
        _print_measured(options.task, Path(options.folder))
        return
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="spec-convert-bench-") as name:
        folder = Path(name)
        make_draft(folder / "source", options.gigabytes)
        make_target(folder / "target", folder / "source")
        size = sum(path.stat().st_size for path in (folder / "source").iterdir())
        for _ in range(options.rounds):
            for task in ("copy", "normalize", "torch", "dense", "ranks"):
                rows.setdefault(task, []).append(_in_own_process(task, folder))
                if task in ("dense", "ranks"):
                    rows.setdefault(f"copy-output of {task}", []).append(_in_own_process("copy-output", folder))
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


def make_target(folder: Path, draft: Path) -> None:
    """A target of one tensor: a head whose kept rows are the draft's."""
    checkpoint = collect(open_source(str(draft)))
    head = checkpoint.tensors["lm_head.weight"].tensor
    own = np.memmap(draft / "model.safetensors", np.uint8, "r", head.start, (head.shape[0], 2 * head.shape[1]))
    targets = read_tables(checkpoint).targets(D2T.OFFSET)
    assert targets is not None
    folder.mkdir()
    size = VOCABULARY * own.shape[1]
    with (folder / "model.safetensors").open("wb") as file:
        file.write(encode([Tensor("lm_head.weight", "BF16", (VOCABULARY, head.shape[1]), 0, size)], {"format": "pt"}))
        for first in range(0, VOCABULARY, 4096):
            block = np.frombuffer(bytearray(os.urandom(min(4096, VOCABULARY - first) * own.shape[1])), np.uint8).reshape(-1, own.shape[1])
            low, high = np.searchsorted(targets, (first, first + 4096))
            block[targets[low:high] - first] = own[low:high]
            file.write(block.data)
        file.flush()
        os.fsync(file.fileno())
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": head.shape[1],
        "num_hidden_layers": 40,
        "max_position_embeddings": 262144,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def copy(folder: Path) -> None:
    """`cp`, fsync of the copy, one digest over it."""
    _copy(folder / "source", folder / "out")


def copy_output(folder: Path) -> None:
    """The same for what another task wrote."""
    _copy(folder / "out", folder / "out-copy")


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", "--reflink=never", str(source), str(target)], check=True)
    for path in sorted(target.rglob("*.safetensors")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            hashlib.file_digest(file, "sha256")


def normalize(folder: Path, layout: str = "speculators", *, target: bool = False, tp: int | None = None) -> None:
    """The rewrite with all its digests."""
    source = open_source(str(folder / "source"))
    target_source = open_source(str(folder / "target")) if target else None
    checkpoint = collect(source)
    recognised = detect(checkpoint).format
    assert recognised is not None
    spec = recognised.read(checkpoint, Settings()).spec
    pairing = collect_pairing(source, spec, read_tables(checkpoint), target_source, collect(target_source)) if target_source else None
    chosen = find(layout)
    options = gather(chosen, spec, checkpoint, (source, target_source), Options(pairing=pairing, tp=tp))
    execute(chosen.plan(spec, checkpoint, options), source, folder / "out", target=target_source)


def dense(folder: Path) -> None:
    """The dense rewrite, each row of the two heads compared."""
    normalize(folder, "sglang-dense", target=True)


def ranks(folder: Path) -> None:
    """Heads split over eight ranks."""
    normalize(folder, tp=8)


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


TASKS: dict[str, Callable[[Path], None]] = {"copy": copy, "normalize": normalize, "torch": torch, "dense": dense, "ranks": ranks, "copy-output": copy_output}


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
    shutil.rmtree(folder / "out-copy", ignore_errors=True)
    if task != "copy-output":
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
        "dense_to_copy_of_output": seconds["dense"] / seconds["copy-output of dense"],
        "ranks_to_copy_of_output": seconds["ranks"] / seconds["copy-output of ranks"],
        "rows": rows,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--json")
    parser.add_argument("--task", choices=sorted(TASKS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
