"""124 prompts of 48 tokens that share no text: the fixtures' 20, two halves of each of the 12 held-out windows, and the first turns of MT-Bench."""

import json

from sglang_harness.environment import TRAINED

from speculators_convert.workloads import mt_bench

LENGTH = 48


def prompts() -> list[list[int]]:
    """Token ids; prompt and 64 more tokens stay below the trained length of 256."""
    from tokenizers import Tokenizer  # noqa: PLC0415

    tokenizer = Tokenizer.from_file(str(TRAINED / "tiny-target" / "tokenizer.json"))
    stated = [json.loads(line)["input_ids"] for line in (TRAINED / "prompts.jsonl").read_text().splitlines()]
    windows = [json.loads(line)["input_ids"] for line in (TRAINED / "texts.jsonl").read_text().splitlines()]
    turns = [item.text for item in mt_bench.items(both_turns=False)]
    halves = [window[start : start + LENGTH] for window in windows for start in (0, LENGTH)]
    return stated + halves + [tokenizer.encode(turn).ids[:LENGTH] for turn in turns]
