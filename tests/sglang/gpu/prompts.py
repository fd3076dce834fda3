"""80 prompts of 48 tokens: the fixtures' 20, and five slices of each of the 12 held-out windows."""

import json

from sglang_harness.environment import TRAINED

LENGTH, STRIDE = 48, 16


def prompts() -> list[list[int]]:
    """Token ids; prompt and 64 more tokens stay below the trained length of 256."""
    stated = [json.loads(line)["input_ids"] for line in (TRAINED / "prompts.jsonl").read_text().splitlines()]
    windows = [json.loads(line)["input_ids"] for line in (TRAINED / "texts.jsonl").read_text().splitlines()]
    return stated + [window[start : start + LENGTH] for window in windows for start in range(0, 5 * STRIDE - STRIDE + 1, STRIDE)]
