"""How far rounding alone moves a target's decision: the calibration of `smoke.equivalence.TOLERANCE_STEPS`.

    python benchmarks/engine_ties.py [--device cpu] [--prompts 20] [--json FILE]

Along the target's own greedy output, each position is read twice: by plain decoding, one token a pass, and by block verification,
7 tokens a pass. `error` is by how much the gap between the two likeliest tokens differs between the two, in rounding steps of the dtype
at those logits: an honest split has both its gaps within the error at its position. `hidden` is the share of positions whose gap is within
the tolerance, where a defect that moved the decision would be called a tie. The exit status is 1 when the trained target's error exceeds it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import torch  # noqa: E402
import transformers  # noqa: E402

from speculators_convert.smoke import pair  # noqa: E402
from speculators_convert.smoke.engine.load import placement  # noqa: E402
from speculators_convert.smoke.engine.splits import gap  # noqa: E402
from speculators_convert.smoke.engine.target import Target, load_target  # noqa: E402
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS  # noqa: E402
from speculators_convert.workloads.prompt_file import read_prompts  # noqa: E402

TRAINED = Path(__file__).resolve().parents[1] / "fixtures" / "trained"
WIDTH, OUTPUT_TOKENS = 7, 64
RANDOM = {
    "random Llama": ("Llama", {}),
    "random Qwen3, sliding": ("Qwen3", {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 24, "use_sliding_window": True}),
    "random Gemma 3": ("Gemma3Text", {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 24, "query_pre_attn_scalar": 32}),
    "random Qwen3 MoE": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}),
}
SIZES = {
    "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "pad_token_id": 1, "initializer_range": 0.2,
}  # fmt: skip


def main() -> int:
    options = _options()
    if options.device == "cpu":
        torch.set_num_threads(1)
    prompts = [prompt.input_ids for prompt in read_prompts(TRAINED / "prompts.jsonl", pair.TARGET)][: options.prompts]
    rows = {}
    for dtype in ("float32", "bfloat16"):
        where = placement(dtype, options.device)
        rows[f"trained target, {dtype}"] = measure(load_target(TRAINED / "tiny-target", (0,), where), prompts, dtype)
        for name in RANDOM:
            rows[f"{name}, {dtype}"] = measure(random_target(name, where.dtype, where.device), prompts[: max(1, options.prompts // 4)], dtype)
    result = {
        "command": " ".join(["python", "benchmarks/engine_ties.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__},
        "device": torch.cuda.get_device_name() if options.device != "cpu" else f"cpu ({platform.machine()})",
        "tolerance_steps": TOLERANCE_STEPS,
        "rows": rows,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return int(any(row["largest_error"] > TOLERANCE_STEPS[name.rpartition(" ")[2]] for name, row in rows.items() if name.startswith("trained")))


@torch.no_grad()
def measure(target: Target, prompts: list[tuple[int, ...]], dtype: str) -> dict[str, float]:
    """Quantiles of the error, and the share of positions that a tie could hide."""
    errors, gaps = list[float](), list[float]()
    for prompt in prompts:
        cache, tokens, plain = target.plain_cache(), list[int](), []
        logits = target.plain(torch.tensor([list(prompt)], device=target.device), cache)[0, -1]
        for _ in range(OUTPUT_TOKENS):
            plain.append(logits)
            tokens.append(int(logits.argmax()))
            logits = target.plain(torch.tensor([[tokens[-1]]], device=target.device), cache)[0, -1]
        for at, block in block_logits(target, [*prompt, *tokens], len(prompt)):
            pair_ids = plain[at].topk(2).indices
            margin = gap(plain[at], pair_ids)
            gaps.append(margin)
            errors.append(abs(margin - gap(block, pair_ids)))
    ordered = sorted(errors)
    return {
        "positions": len(errors),
        "median_error": ordered[len(ordered) // 2],
        "error_99_percent": ordered[int(len(ordered) * 0.99)],
        "largest_error": ordered[-1],
        "hidden": sum(item <= TOLERANCE_STEPS[dtype] for item in gaps) / len(gaps),
    }


def block_logits(target: Target, text: list[int], begin: int) -> list[tuple[int, torch.Tensor]]:
    """Logits before each output token but the first, by verification of blocks on the engine's own cache."""
    cache, ids = target.cache(1, len(text) + WIDTH), torch.tensor([text], device=target.device)
    positions = torch.arange(len(text), device=target.device)[None]
    target.forward(ids[:, :begin], positions[:, :begin], cache, begin)
    found = []
    for start in range(begin, len(text) - 1, WIDTH):
        end = min(start + WIDTH, len(text) - 1)
        logits = target.forward(ids[:, start:end], positions[:, start:end], cache, end).logits[0]
        found += [(start + offset - begin + 1, row) for offset, row in enumerate(logits)]
    return found


def random_target(name: str, dtype: torch.dtype, device: str) -> Target:
    kind, extra = RANDOM[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **extra})
    return Target(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device, dtype).eval(), (0,))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
