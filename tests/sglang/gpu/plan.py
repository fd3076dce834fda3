"""What is run on a GPU host: the slices, one server each, and their command lines."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

FIXTURES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal")
ANCHOR_FULL, BONUS, GATED, SLIDING = FIXTURES[:4]
TOKENS, SAMPLED = 64, 20
STOCK = "stock.graph"
"""The full-vocabulary draft on stock SGLang without the plugin."""
STOCK_FLASH = "stock-dense.graph.fa3"
"""The bonus-anchor draft, rewritten over the whole vocabulary, on stock SGLang's FA3 draft back end: the width defect before the plugin's fix."""
FLASH = f"{BONUS}.graph.fa3"
"""The same draft through the plugin: the width defect after the fix."""


@dataclass(frozen=True)
class Slice:
    """One server."""

    name: str
    draft: str
    graph: bool = True
    attention: str = "triton"
    target: str = "bf16"
    plugin: bool = True
    tp: int = 1
    split: bool = False
    """Served from the per-rank files of `normalize --tp`."""


def slices(gpus: int = 1) -> list[Slice]:
    """All of them, those first that the reference engine runs after; those of two ranks need two GPUs."""
    both = [Slice(f"{draft}.{'graph' if graph else 'eager'}", draft, graph) for graph in (False, True) for draft in FIXTURES]
    flash = [Slice(FLASH, BONUS, attention="fa3"), Slice(f"{BONUS}.eager.fa3", BONUS, graph=False, attention="fa3"), Slice(f"{GATED}.graph.fa3", GATED, attention="fa3")]
    flash.append(Slice(f"{SLIDING}.graph.fa3", SLIDING, attention="fa3"))
    stock = [Slice(STOCK, ANCHOR_FULL, plugin=False), Slice(STOCK_FLASH, BONUS, attention="fa3", plugin=False)]
    ranks = [Slice(f"{draft}.graph.tp2", draft, tp=2) for draft in FIXTURES] + [Slice(f"{BONUS}.graph.tp2.split", BONUS, tp=2, split=True)]
    rounded = [Slice(f"{BONUS}.graph.fp8", BONUS, target="fp8"), Slice(f"{GATED}.graph.packed", GATED, target="packed")]
    return [*(ranks if gpus > 1 else []), *both, *flash, *stock, *rounded]


def command(item: Slice, target: Path, draft: Path) -> list[str]:
    """The server's command line without its ports."""
    graph = ["--cuda-graph-max-bs-decode", "8"] if item.graph else ["--disable-cuda-graph"]
    if item.target == "packed":
        graph += ["--cuda-graph-backend-prefill", "disabled"]
    return [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(target), "--attention-backend", item.attention, "--sampling-backend", "pytorch",
        "--mem-fraction-static", "0.85", "--max-total-tokens", "8192", "--max-running-requests", "8", "--disable-radix-cache", "--disable-custom-all-reduce", "--sleep-on-idle",
        "--random-seed", "1", "--tp-size", str(item.tp), "--speculative-algorithm", "DSPARK", "--speculative-draft-model-path", str(draft),
        "--speculative-draft-attention-backend", item.attention, *graph,
    ]  # fmt: skip


def environ(item: Slice, site: Path, gpus: tuple[int, ...]) -> dict[str, str]:
    """The server's environment: the project on the path, the plugins it may load, the GPUs it sees."""
    own = {"SGLANG_PLUGINS": "speculators_dspark,draft_recorder" if item.plugin else "draft_recorder", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", **own}


def preparation(item: Slice) -> list[str] | None:
    """A command whose result SGLang's kernel cache keeps; run before the slice, beside others.

    SGLang compiles its Marlin GEMM on first use, 255 kernels in one file: more than a minute of one core, which a server
    spends silently in its first forward pass.
    """
    if item.target != "packed":
        return None
    return [sys.executable, "-c", "import torch; from sglang.kernels.ops.gemm.gptq_marlin import _jit_gptq_marlin_module as build; build(torch.bfloat16)"]
