"""What the caches are worth on a CPU: the drafted loop against the same loop that keeps no keys and values.

    python benchmarks/engine_kv.py [--context 2000] [--hidden 512] [--new-tokens 12] [--rounds 3] [--json FILE]

The random pair has a Qwen3 target of `--hidden` and a draft of its shape; the fixture is the pair that ships with the package, at 180
tokens of context. Without reuse, each round reads the whole history again, target and draft. Both loops must give the same tokens, or
the exit status is 1, as it is when the random pair's ratio is below 5.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
"""Other benchmarks here have the names of standard modules."""

import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor  # noqa: E402

from speculators_convert.api import look  # noqa: E402
from speculators_convert.smoke import pair  # noqa: E402
from speculators_convert.smoke.engine import decode, loop  # noqa: E402
from speculators_convert.smoke.engine.decode import State  # noqa: E402
from speculators_convert.smoke.engine.load import Placement, read_weights  # noqa: E402
from speculators_convert.smoke.engine.model import Draft  # noqa: E402
from speculators_convert.smoke.engine.reading import Reading  # noqa: E402
from speculators_convert.smoke.engine.target import Step, Target, load_target  # noqa: E402
from speculators_convert.spec import DraftSpec, expected_shapes, known  # noqa: E402
from speculators_convert.workloads.prompt_file import read_prompts  # noqa: E402

REQUIRED_RATIO = 5.0
VOCABULARY = 4096


def main() -> int:
    options = _options()
    torch.set_num_threads(options.threads)
    rows = {
        "random": measure(*random_pair(options.hidden), random_text(options.context), options.new_tokens, options.rounds),
        "fixture": measure(*fixture_pair(), fixture_text(180), options.new_tokens, options.rounds),
    }
    result = {
        "command": " ".join(["python", "benchmarks/engine_kv.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__},
        "device": f"cpu ({platform.machine()})",
        "threads": options.threads,
        "rows": rows,
        "required_ratio": REQUIRED_RATIO,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return int(not all(row["outputs_equal"] for row in rows.values()) or rows["random"]["ratio"] < REQUIRED_RATIO)


def measure(draft: Draft, target: Target, text: list[int], new_tokens: int, rounds: int) -> dict[str, object]:
    """Median seconds after the prefill, with and without reuse."""
    limits, seconds, outputs = loop.Limits(new_tokens), {}, {}
    for name in ("reuse", "no_reuse"):
        took = []
        for _ in range(rounds):
            clock = Clock(loop.EAGER if name == "reuse" else Forgetful().steps)
            outputs[name] = loop.generate(draft, target, [text], limits, steps=clock.steps)
            took.append(time.perf_counter() - clock.began)
        seconds[name] = statistics.median(took)
    steps_run = len(outputs["reuse"][0].accepted)
    return {
        "context": len(text),
        "hidden": int(target.config.hidden_size),
        "new_tokens": new_tokens,
        "verify_steps": steps_run,
        "seconds_with_reuse": seconds["reuse"],
        "seconds_without_reuse": seconds["no_reuse"],
        "ratio": seconds["no_reuse"] / seconds["reuse"],
        "outputs_equal": outputs["reuse"] == outputs["no_reuse"],
    }


class Clock:
    """Starts when the first round begins: both loops read the prompt once."""

    def __init__(self, steps: loop.Steps) -> None:
        self.began = 0.0
        self.steps = loop.Steps(self._start, steps.first, steps.propose, steps.verify, steps.accept, steps.commit)

    def _start(self) -> None:
        self.began = self.began or time.perf_counter()


class Forgetful:
    """Rounds that keep no keys and values: draft and target read all tokens before the block again."""

    def __init__(self) -> None:
        self._fused: Tensor | None = None
        self.steps = loop.Steps(propose=self._propose, verify=self._verify)

    def _propose(self, draft: Draft, state: State, extent: int) -> decode.Proposal:
        if self._fused is not None:  # the first round has just been prefilled
            state.draft_cache = draft.cache(1, state.ids.shape[1])
            draft.append(state.draft_cache, self._fused[:, :extent], torch.arange(extent)[None])
        return decode.propose(draft, state, extent)

    def _verify(self, target: Target, state: State, tokens: Tensor, extent: int) -> Step:
        length = int(state.length)
        state.target_cache = target.cache(1, state.ids.shape[1])
        ids = torch.cat((state.ids[:, :length], tokens), 1)
        step = target.forward(ids, torch.arange(ids.shape[1])[None], state.target_cache, extent, torch.arange(length - 1, ids.shape[1]))
        self._fused = step.fused
        return Step(step.logits, step.fused[:, length - 1 :])


def random_pair(hidden: int) -> tuple[Draft, Target]:
    """A random target and a random draft of its shape, tapping three of its layers."""
    torch.manual_seed(11)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=hidden // 8,
        max_position_embeddings=8192,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    inner = look(str(pair.DRAFT)).spec
    sizes = {"hidden_size": hidden, "target_hidden_size": hidden, "intermediate_size": 3 * hidden, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": hidden // 8}
    spec = inner.model_copy(update={**sizes, "target_vocab_size": VOCABULARY, "draft_vocab_size": VOCABULARY, "target_layer_ids": (1, 3, 5), "max_position_embeddings": 8192})
    target = Target(model, (1, 3, 5))
    return Draft(Reading(spec), random_weights(spec), target.shared), target


def random_weights(spec: DraftSpec) -> dict[str, Tensor]:
    """Weights of the shapes that the spec asks for; norms are one."""
    shapes = {role: tuple(known(size, role) for size in shape) for role, shape in expected_shapes(spec).items()}
    return {role: torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02 for role, shape in shapes.items()}


def random_text(length: int) -> list[int]:
    return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(5)).tolist()


def fixture_pair() -> tuple[Draft, Target]:
    inspection = look(str(pair.DRAFT))
    target = load_target(pair.TARGET, known(inspection.spec.target_layer_ids, "target_layer_ids"), Placement())
    return Draft(Reading(inspection.spec), read_weights(inspection.spec, inspection.source, Placement()), target.shared), target


def fixture_text(length: int) -> list[int]:
    prompts = [token for prompt in read_prompts(pair.PROMPTS, pair.TARGET) for token in prompt.input_ids]
    return prompts[:length]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
