"""Requests with and without images, and the table and log lines of compact verification's plan."""

import base64
import io
import json
import random
import re
from pathlib import Path
from typing import Any

from gpu.prompts import prompts

STEP_COST = 0.08
"""Cost of one more verified token in the table that plans the runs, relative to a step: high enough that weak slots are left out."""


def requests_of(family: str) -> list[dict[str, Any]]:
    """Forty text prompts, or 24 requests of which every second one has an image, of changing shapes."""
    texts = prompts()
    if family == "text":
        return [{"input_ids": item} for item in texts[:40]]
    words = ["def read(path):", "import os", "class Node(object):", "return None", "for item in items:", "if not value:"]
    made: list[dict[str, Any]] = []
    for number in range(24):
        if number % 2:
            made.append({"input_ids": texts[number]})
            continue
        image = picture(64 + 32 * (number % 5), 64 + 32 * (number % 3), number)
        made.append({"text": f"{words[number % 6]} <|vision_start|><|image_pad|><|vision_end|> {words[(number + 1) % 6]}", "image_data": image})
    return made


def picture(width: int, height: int, seed: int) -> str:
    """A PNG of coloured noise, as base64."""
    from PIL import Image  # noqa: PLC0415

    data = random.Random(seed).randbytes(width * height * 3)  # noqa: S311
    buffer = io.BytesIO()
    Image.frombytes("RGB", (width, height), data).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def cost_table(path: Path) -> Path:
    """A table of verification cost that makes the planner leave weak slots out, so that requests differ."""
    tokens = list(range(1, 97))
    path.write_text(json.dumps({"sample_batch_tokens": tokens, "sample_steps_per_sec": [1000 / (1 + STEP_COST * count) for count in tokens], "max_batch_tokens": 96}))
    return path


def scheduled(log: str) -> dict[str, int]:
    """Of the planned steps: how many, how many had several requests, and in how many of those the lengths differed."""
    steps: list[list[int]] = []
    for line in log.splitlines():
        if "[DSPARK-CPS] num_reqs" in line:
            steps.append([])
        elif (found := re.search(r"\[DSPARK-CPS\] .*verify_len=(\d+)", line)) and steps:
            steps[-1].append(int(found.group(1)))
    several = [lengths for lengths in steps if len(lengths) > 1]
    return {"steps": len(steps), "several": len(several), "differ": sum(len(set(lengths)) > 1 for lengths in several)}
