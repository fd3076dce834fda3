"""Workloads: MT-Bench, a local copy of MMSpec, prompt files. Each gives requests in a target's own token ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from speculators_convert.errors import UsageError
from speculators_convert.results.smoke import Prompt
from speculators_convert.workloads import mmspec, mt_bench, prompt_file
from speculators_convert.workloads.base import Item, Request, Skipped, Workload, per_topic
from speculators_convert.workloads.tokens import Encoder, max_positions

__all__ = ["Request", "Skipped", "Workload", "is_named", "load", "load_workload", "refuse_images", "refuse_nothing_left"]


def is_named(name: str) -> bool:
    """Whether `name` is a workload rather than a file of prompts."""
    return name == mt_bench.NAME or name.partition(":")[0] == mmspec.NAME


def load(name: str, target: Path, *, output_tokens: int, both_turns: bool = False, topic_limit: int | None = None) -> Workload:
    """The workload `mt-bench`, `mmspec:FOLDER` or a prompt file. Requests whose tokens and `output_tokens` exceed the target's positions are in `skipped`."""
    items, room, encoder = per_topic(_items(name, both_turns=both_turns), topic_limit), max_positions(target), Encoder(target)
    requests, skipped = [], []
    for item in items:
        ids = encoder.ids(item)
        if not ids:
            raise UsageError("the prompt is empty", where=f"{name}, request {item.name}", measured="0 tokens", expected="1 or more", hint="look at the target's chat template")
        if room is not None and len(ids) + output_tokens > room:
            skipped.append(Skipped(item.name, len(ids), f"{len(ids)} tokens and {output_tokens} more exceed the target's {room} positions"))
        else:
            requests.append(Request(item.name, item.topic, ids, item.reference_output_ids, mmspec.read_image(item.image) if item.image else None))
    return Workload(name, tuple(requests), tuple(skipped))


def load_workload(name_or_path: str, target_folder: Path, *, output_tokens: int = 0, both_turns: bool = True, report: Callable[[Skipped], None]) -> tuple[Prompt, ...]:
    """The requests as prompts; `report` is told of each one that the target has no room for. `UsageError` when none is left, or when they have images."""
    workload = load(name_or_path, target_folder, output_tokens=output_tokens, both_turns=both_turns)
    for item in workload.skipped:
        report(item)
    refuse_nothing_left(workload)
    refuse_images(workload)
    return tuple(Prompt(input_ids=item.input_ids, reference_output_ids=item.reference_output_ids) for item in workload.requests)


def refuse_images(workload: Workload) -> None:
    """`UsageError` when requests have images: token ids alone would ask about pictures that nobody sent."""
    if any(item.image for item in workload.requests):
        raise UsageError("the workload has images, which cannot be sent here", where=workload.name, expected="a workload of text", hint="bench --engine sglang sends them")


def refuse_nothing_left(workload: Workload) -> None:
    """`UsageError` when the target has no room for any request."""
    if not workload.requests:
        first = workload.skipped[0].reason if workload.skipped else "the workload is empty"
        raise UsageError("no request is left", where=workload.name, measured=first, expected="1 or more that fit", hint="ask for fewer output tokens, or take shorter prompts")


def _items(name: str, *, both_turns: bool) -> tuple[Item, ...]:
    if name == mt_bench.NAME:
        return mt_bench.items(both_turns=both_turns)
    kind, colon, folder = name.partition(":")
    if kind == mmspec.NAME:
        if not colon:
            raise UsageError("MMSpec is not shipped", where=name, expected=f"{mmspec.NAME}:FOLDER with {mmspec.FILE} and {mmspec.IMAGES}/", hint="copy one split of the dataset")
        return mmspec.items(Path(folder))
    return prompt_file.items(Path(name))
