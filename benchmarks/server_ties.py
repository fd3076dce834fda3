"""How far rounding alone moves a decision between servers: does `smoke.equivalence.TOLERANCE_STEPS` hold for `smoke.sglang.server_splits` too?

    python benchmarks/server_ties.py --dtype bfloat16 [--device cpu] [--json FILE]
    python benchmarks/server_ties.py --dtype bfloat16 --url http://127.0.0.1:30000      # a server of the same target, in the same dtype

Along greedy output of the trained target, at every fourth token, the gap between its two likeliest tokens in rounding steps of the dtype.
Without a server: by how much the gaps that `server_splits` measures (the last token alone, the worst of all blocks) differ from decoding
one token at a time. With `--url`: by how much the server's own gap, from its log probabilities, differs from them. A split that rounding
explains has its gaps within such an error. The exit status is 1 when an error exceeds the tolerance.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import torch  # noqa: E402
import transformers  # noqa: E402

from speculators_convert.smoke.engine.load import placement  # noqa: E402
from speculators_convert.smoke.engine.splits import gap  # noqa: E402
from speculators_convert.smoke.engine.target import Target, load_target  # noqa: E402
from speculators_convert.smoke.equivalence import TOLERANCE_STEPS  # noqa: E402
from speculators_convert.smoke.sglang.server_splits import measure  # noqa: E402
from speculators_convert.workloads.prompt_file import read_prompts  # noqa: E402

TRAINED = Path(__file__).resolve().parents[1] / "fixtures" / "trained"
GAMMA, OUTPUT_TOKENS, EVERY = 6, 64, 4


def main() -> int:
    options = _options()
    if options.device == "cpu":
        torch.set_num_threads(1)
    prompts = [prompt.input_ids for prompt in read_prompts(TRAINED / "prompts.jsonl", TRAINED / "tiny-target")][: options.prompts]
    target = load_target(TRAINED / "tiny-target", (0,), placement(options.dtype, options.device))
    pairs = list(_of_server(target, prompts, options.url) if options.url else _of_engine(target, prompts))
    rows = {name: _row([abs(left - right) for left, right in zip(column, (pair[-1] for pair in pairs), strict=True)]) for name, column in _columns(pairs)}
    result = {
        "command": " ".join(["python", "benchmarks/server_ties.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__},
        "device": torch.cuda.get_device_name() if options.device != "cpu" else f"cpu ({platform.machine()})",
        "reference": "the server's own gap" if options.url else "decoding one token at a time",
        "tolerance_steps": TOLERANCE_STEPS[options.dtype],
        "rows": rows,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return int(any(row["largest_error"] > TOLERANCE_STEPS[options.dtype] for row in rows.values()))


def _columns(pairs: Sequence[tuple[float, float, float]]) -> Iterator[tuple[str, list[float]]]:
    yield "last token alone", [pair[0] for pair in pairs]
    yield "worst of all blocks", [pair[1] for pair in pairs]


def _row(errors: list[float]) -> dict[str, float]:
    ordered = sorted(errors)
    return {"positions": len(ordered), "median_error": ordered[len(ordered) // 2], "error_99_percent": ordered[int(len(ordered) * 0.99)], "largest_error": ordered[-1]}


@torch.no_grad()
def _of_engine(target: Target, prompts: Sequence[tuple[int, ...]]) -> Iterator[tuple[float, float, float]]:
    """Both gaps of `server_splits`, and that of decoding one token at a time."""
    for prompt in prompts:
        cache, tokens = target.plain_cache(), list[int]()
        logits = target.plain(torch.tensor([list(prompt)], device=target.device), cache)[0, -1]
        for at in range(OUTPUT_TOKENS):
            if at % EVERY == 0:
                likeliest = logits.topk(2).indices
                yield *measure(target, prompt, tokens, (int(likeliest[0]), int(likeliest[1])), GAMMA), gap(logits, likeliest)
            tokens.append(int(logits.argmax()))
            logits = target.plain(torch.tensor([[tokens[-1]]], device=target.device), cache)[0, -1]


@torch.no_grad()
def _of_server(target: Target, prompts: Sequence[tuple[int, ...]], url: str) -> Iterator[tuple[float, float, float]]:
    """Both gaps of `server_splits`, and the server's, in steps at the size of the target's own logits."""
    for prompt in prompts:
        tokens, likeliest = _ask(url, prompt)
        for at in range(0, len(tokens), EVERY):
            (first, left), (second, right) = likeliest[at]
            logits = target.plain(torch.tensor([[*prompt, *tokens[:at]]], device=target.device), target.plain_cache())[0, -1]
            size = max(abs(float(logits[first])), abs(float(logits[second])))
            step = torch.finfo(logits.dtype).eps * 2.0 ** math.floor(math.log2(size))
            yield *measure(target, prompt, tokens[:at], (first, second), GAMMA), (left - right) / step


def _ask(url: str, prompt: tuple[int, ...]) -> tuple[list[int], list[list[tuple[int, float]]]]:
    """Greedy output of a server, and the two likeliest tokens with their log probabilities at each place."""
    body = {
        "input_ids": list(prompt),
        "sampling_params": {"temperature": 0, "max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True},
        "return_logprob": True,
        "top_logprobs_num": 2,
    }
    request = urllib.request.Request(f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 (the user's own server)
    with urllib.request.urlopen(request, timeout=300) as response:  # noqa: S310
        answer = json.loads(response.read())
    return answer["output_ids"], [[(int(token), float(value)) for value, token, *_ in place] for place in answer["meta_info"]["output_top_logprobs"]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=sorted(TOLERANCE_STEPS), default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--url")
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
