"""Time of one whole drafted block on a GPU: native reduced vocabulary (the plugin) against its dense rewrite (stock SGLang).

    python3 benchmarks/plugin_block.py --out block.json              # on the GPU host, with stock SGLang 0.5.23
    python3 benchmarks/plugin_block.py --device cpu --small          # the same code, small and without graphs, to see that it runs

Real model classes and the real sampler of the draft's graph, random weights, batch 1. Only attention over the context is
a plain SDPA over fixed keys, the same for both. Graphs are replayed in turns; medians over rounds.
"""

from __future__ import annotations

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("benchmarks")]  # inspect.py there would hide the standard module

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/sglang")]
LIMIT = 0.6
SITE = "PLUGIN_BLOCK_SITE"


@dataclass(frozen=True)
class Shape:
    """The draft of the issue; heads as in Qwen3 of this width."""

    layers: int = 5
    hidden: int = 2048
    intermediate: int = 6144
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 248320
    draft_vocab: int = 32000
    rank: int = 256
    pad: int = 8
    """Columns that the dense rewrite adds to the rank, to forbid unmapped tokens."""
    gamma: int = 8
    context: int = 1024


SMALL = Shape(layers=2, hidden=128, intermediate=256, heads=4, kv_heads=2, head_dim=32, vocab=4096, draft_vocab=512, rank=32, gamma=8, context=64)


def main() -> None:
    """Command line; starts itself again with the plugin on the path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if SITE not in os.environ:
        sys.exit(_again(options.device))
    result = measure(SMALL if options.small else Shape(), options)
    text = json.dumps(result, indent=2, sort_keys=True) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


def _again(device: str) -> int:
    from gpu.site import make_site  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        site = make_site(Path(folder) / "site")
        environ = {**os.environ, SITE: "1", "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}", "SGLANG_PLUGINS": "speculators_dspark"}
        if device == "cpu":
            environ |= {"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0", "PYTHONPATH": f"{site}:{ROOT / 'tests/sglang/stand_in'}"}
        return subprocess.run([sys.executable, "-W", "ignore", *sys.argv], env=environ, check=False).returncode


def measure(shape: Shape, options: argparse.Namespace) -> dict[str, Any]:
    """Both drafts, each way of drafting, in turns."""
    import torch  # noqa: PLC0415

    from speculators_convert.sglang_plugin.doctor import diagnose  # noqa: PLC0415

    start(options.device)
    rows = []
    for greedy in (False, True):
        drafts = {name: Draft(shape, options.device, native=name == "native", greedy=greedy) for name in ("dense", "native")}
        parts = {f"{name} {part}": function for name, draft in drafts.items() for part, function in draft.parts(options.device).items()}
        times: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(options.rounds):
            for name, replay in parts.items():
                times[name].append(_milliseconds(replay, options.replays, options.device))
        medians = {name: statistics.median(values) for name, values in times.items()}
        ratio = medians["native block"] / medians["dense block"]
        rows.append({"drafting": "greedy" if greedy else "sampling", "milliseconds": times, "medians": medians, "ratio": ratio, "holds": ratio <= LIMIT})
        del drafts, parts
        if options.device != "cpu":
            torch.cuda.empty_cache()
    return {
        "shape": asdict(shape),
        "limit": LIMIT,
        "replays": options.replays,
        "rows": rows,
        "command": sys.argv,
        "commit": options.commit,
        "doctor": diagnose().model_dump(mode="json"),
    }


def start(device: str) -> None:
    """Plugins and one-rank process groups, as in a scheduler."""
    from sglang.srt.distributed import parallel_state  # noqa: PLC0415
    from sglang.srt.plugins import load_plugins  # noqa: PLC0415
    from sglang.srt.runtime_context import SpawnRanks, publish  # noqa: PLC0415
    from sglang.srt.server_args import ServerArgs  # noqa: PLC0415
    from sglang_harness.environment import TRAINED  # noqa: PLC0415

    load_plugins()
    backend = "torch_native" if device == "cpu" else "triton"
    publish(ServerArgs(model_path=str(TRAINED / "tiny-target"), device=device, attention_backend=backend), role="scheduler", ranks=SpawnRanks(world_rank=0))
    group = "gloo" if device == "cpu" else "nccl"
    parallel_state.init_distributed_environment(world_size=1, rank=0, local_rank=0, backend=group, distributed_init_method=f"file://{tempfile.mkdtemp()}/rendezvous")
    parallel_state.initialize_model_parallel(backend=group)


class Draft:
    """One of the two drafts with random weights, and what a block of it runs."""

    def __init__(self, shape: Shape, device: str, *, native: bool, greedy: bool) -> None:
        import torch  # noqa: PLC0415
        from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding  # noqa: PLC0415
        from sglang.srt.models.dspark import DSparkDraftModel  # noqa: PLC0415
        from sglang.srt.speculative.dspark_components.dspark_draft import DraftNoise  # noqa: PLC0415
        from sglang.srt.speculative.dspark_components.dspark_draft_sampler import DsparkDraftSampler, _step_logits_width  # noqa: PLC0415

        from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel  # noqa: PLC0415

        torch.manual_seed(1)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        torch.set_default_dtype(dtype)
        with torch.device(device):
            self.model = (SpeculatorsDSparkModel if native else DSparkDraftModel)(_config(shape, native=native)).eval()
            embedding, head = VocabParallelEmbedding(shape.vocab, shape.hidden), ParallelLMHead(shape.vocab, shape.hidden)
        self.model.attach_shared_modules(embed_tokens=embedding, lm_head=head)
        for parameter in self.model.parameters():
            torch.nn.init.normal_(parameter.data, std=0.02)
        if native:
            ids = torch.randperm(shape.vocab)[: shape.draft_vocab].sort().values
            self.model.markov_head.targets.copy_(ids)
        noise = DraftNoise(key=1, offset=torch.zeros(1, dtype=torch.int64, device=device))
        self.sampler = DsparkDraftSampler(
            model=self.model, gamma=shape.gamma, max_bs=1, device=device, noise=noise, tp_sync=SimpleNamespace(sync=lambda _site, tokens: tokens), greedy_draft=greedy
        )
        if not greedy:
            self.sampler.step_logits = torch.empty(1, shape.gamma, _step_logits_width(self.model), dtype=dtype, device=device)
        self.ids = torch.full((shape.gamma,), 2, device=device)
        self.positions = torch.arange(shape.context, shape.context + shape.gamma, device=device)
        self.hidden = torch.randn(shape.gamma, shape.hidden, device=device, dtype=dtype)
        self.batch = SimpleNamespace(forward_mode=_verify_mode(), batch_size=1)
        self.attention = FixedContext(shape, device, dtype)

    def block(self) -> None:
        """Backbone, head and Markov chain."""
        from sglang.srt.model_executor.forward_context import ForwardContext, forward_context  # noqa: PLC0415

        with forward_context(ForwardContext(attn_backend=self.attention)):
            hidden = self.model(self.ids, self.positions, self.batch).hidden_states
        self.sampler(hidden, self.ids)

    def heads(self) -> None:
        """Head and Markov chain on given states."""
        self.sampler(self.hidden, self.ids)

    def head(self) -> None:
        """Base logits only."""
        self.model.compute_base_logits(self.hidden)

    def parts(self, device: str) -> dict[str, Callable[[], None]]:
        """What is timed, captured where there are graphs."""
        functions = {"block": self.block, "head and Markov": self.heads, "head": self.head}
        return functions if device == "cpu" else {name: _captured(function) for name, function in functions.items()}


class FixedContext:
    """Attention of a block over keys that stay: both drafts have the same."""

    def __init__(self, shape: Shape, device: str, dtype: Any) -> None:
        import torch  # noqa: PLC0415

        self.keys = torch.randn(1, shape.kv_heads, shape.context, shape.head_dim, device=device, dtype=dtype)

    def forward(self, q: Any, k: Any, v: Any, layer: Any, *_: Any, **__: Any) -> Any:
        """[T, heads * D] from the fixed context and the block itself."""
        import torch  # noqa: PLC0415

        q, k, v = (item.view(1, q.shape[0], -1, layer.head_dim).transpose(1, 2) for item in (q, k, v))
        keys, values = torch.cat((self.keys, k), 2), torch.cat((self.keys, v), 2)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True).transpose(1, 2).reshape(q.shape[2], -1)


def _verify_mode() -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: PLC0415

    return ForwardMode.TARGET_VERIFY


def _config(shape: Shape, *, native: bool) -> Any:
    from transformers import Qwen3Config  # noqa: PLC0415

    rank = shape.rank if native else shape.rank + shape.pad
    keys = {"block_size": shape.gamma, "sample_from_anchor": True, "target_layer_ids": [1, 2, 3], "mask_token_id": 2, "markov_rank": rank, "markov_head_type": "vanilla"}
    return Qwen3Config(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.intermediate, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, max_position_embeddings=4096, rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
        enable_confidence_head=False, draft_vocab_size=shape.draft_vocab if native else shape.vocab, dspark_config=keys, dflash_config=keys, **keys,
    )  # fmt: skip


def _captured(function: Callable[[], None]) -> Callable[[], None]:
    import torch  # noqa: PLC0415

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        function()
    return graph.replay


def _milliseconds(function: Callable[[], None], replays: int, device: str) -> float:
    """Mean over `replays`, on the device's clock."""
    import time  # noqa: PLC0415

    import torch  # noqa: PLC0415

    if device == "cpu":
        with torch.no_grad():
            begin = time.perf_counter()
            function()
            return 1000 * (time.perf_counter() - begin)
    for _ in range(10):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / replays


if __name__ == "__main__":
    main()
