"""Draft step, verify step and whole loop of the reference engine: mode `graph` against `eager`, on the pair that ships with the package.

    python benchmarks/engine_graph.py [--device cuda] [--dtype float32] [--batch-size 1] [--repeats 200] [--json FILE]

Each step is timed alone over the same state (the caches of a prefilled batch), the loop over whole requests. Outputs of both
modes must be equal, or the exit status is 1. Needs torch 2.8 or newer and transformers 5.5 or newer; on a CPU the graph mode only
has fixed shapes, so the ratio says nothing there.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import torch  # noqa: E402
import transformers  # noqa: E402

from speculators_convert.api import look  # noqa: E402
from speculators_convert.smoke import pair  # noqa: E402
from speculators_convert.smoke.engine import graphs, loop  # noqa: E402
from speculators_convert.smoke.engine.decode import State  # noqa: E402
from speculators_convert.smoke.engine.load import placement, read_weights  # noqa: E402
from speculators_convert.smoke.engine.model import Draft  # noqa: E402
from speculators_convert.smoke.engine.reading import Reading  # noqa: E402
from speculators_convert.smoke.engine.target import Target, load_target  # noqa: E402
from speculators_convert.spec import known  # noqa: E402
from speculators_convert.workloads.prompt_file import read_prompts  # noqa: E402

REQUIRED_RATIO = 3.0
ROUNDS = 5


def main() -> int:
    options = _options()
    if options.device == "cpu":
        torch.set_num_threads(1)
    draft, target = load_pair(options.dtype, options.device)
    requests = [list(prompt.input_ids) for prompt in read_prompts(pair.PROMPTS, pair.TARGET)][: options.batch_size]
    limits = loop.Limits(options.max_new_tokens, target.stop_ids())
    capacity = max(map(len, requests)) + loop.room(draft, limits)
    rows = {}
    outputs = {}
    for mode in ("eager", "graph"):
        state = loop.empty(draft, target, len(requests), capacity)
        began = time.perf_counter()
        steps = graphs.static(draft, target, state, loop.EAGER) if mode == "graph" else loop.EAGER
        prepared = time.perf_counter() - began
        outputs[mode] = loop.generate(draft, target, requests, limits, steps=steps, state=state)
        rows[mode] = {
            "prepare_seconds": prepared,
            **measure_steps(draft, target, state, steps, requests, options.repeats),
            **measure_loop(draft, target, state, steps, requests, limits),
        }
    ratios = {name: rows["eager"][name] / rows["graph"][name] for name in ("draft_step_seconds", "verify_step_seconds", "loop_seconds")}
    same = outputs["eager"] == outputs["graph"]
    result = {
        "command": " ".join(["python", "benchmarks/engine_graph.py", *sys.argv[1:]]),
        "commit": commit(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda},
        "device": torch.cuda.get_device_name() if options.device != "cpu" else f"cpu ({platform.machine()})",
        "dtype": options.dtype,
        "batch_size": len(requests),
        "positions": capacity,
        "modes": rows,
        "ratios": ratios,
        "required_ratio": REQUIRED_RATIO if options.device != "cpu" else None,
        "outputs_equal": same,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return int(not same or (options.device != "cpu" and min(ratios.values()) < REQUIRED_RATIO))


def load_pair(dtype: str, device: str) -> tuple[Draft, Target]:
    """The shipped draft and its target."""
    inspection, where = look(str(pair.DRAFT)), placement(dtype, device)
    spec = inspection.spec
    target = load_target(pair.TARGET, known(spec.target_layer_ids, "target_layer_ids"), where)
    return Draft(Reading(spec), read_weights(spec, inspection.source, where), target.shared), target


@torch.no_grad()
def measure_steps(draft: Draft, target: Target, state: State, steps: loop.Steps, requests: list[list[int]], repeats: int) -> dict[str, float]:
    """Median seconds of one draft step and one verify step over a prefilled state; neither changes what the other reads."""
    loop.prefill(draft, target, state, requests, steps.first)
    extent = int(state.length.max())
    steps.prepare()
    proposal = steps.propose(draft, state, extent - 1)
    steps.verify(target, state, proposal.tokens, extent + draft.gamma)
    timed: dict[str, Callable[[], object]] = {
        "draft_step_seconds": lambda: steps.propose(draft, state, extent - 1),
        "verify_step_seconds": lambda: steps.verify(target, state, proposal.tokens, extent + draft.gamma),
    }
    return {name: statistics.median(_timed(function, repeats, str(state.ids.device)) for _ in range(ROUNDS)) for name, function in timed.items()}


def measure_loop(draft: Draft, target: Target, state: State, steps: loop.Steps, requests: list[list[int]], limits: loop.Limits) -> dict[str, float]:
    """Median seconds of whole requests, prefill included, and tokens per second."""
    device = str(state.ids.device)
    seconds = statistics.median(_timed(lambda: loop.generate(draft, target, requests, limits, steps=steps, state=state), 1, device) for _ in range(ROUNDS))
    tokens = sum(len(run.tokens) for run in loop.generate(draft, target, requests, limits, steps=steps, state=state))
    return {"loop_seconds": seconds, "tokens_per_second": tokens / seconds}


def _timed(function: Callable[[], object], repeats: int, device: str) -> float:
    """Seconds of one call, the device's work included."""
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    function()
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    wait()
    return (time.perf_counter() - began) / repeats


def commit() -> str:
    """The commit of the working tree; `+` when it has changes, unknown outside a repository."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "src", "benchmarks"], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
