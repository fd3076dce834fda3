"""MT-Bench: 80 questions of two turns, shipped with the package (Apache-2.0, see `mt_bench_data/README.md`)."""

from __future__ import annotations

import json
from pathlib import Path

from speculators_convert.workloads.base import Item

NAME = "mt-bench"
FILE = Path(__file__).parent / "mt_bench_data" / "question.jsonl"


def items(*, both_turns: bool) -> tuple[Item, ...]:
    """First turns (80), or both (160).

    No model's answer stands between the turns: a second turn is asked below the first question, so that the requests are the same for every engine.
    """
    found = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        first, second = question["turns"]
        found.append(Item(f"{question['question_id']}.1", question["category"], first, chat=True))
        if both_turns:
            found.append(Item(f"{question['question_id']}.2", question["category"], f"{first}\n\n{second}", chat=True))
    return tuple(found)
