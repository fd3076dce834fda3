"""The claims that raw rows support: what holds, what does not, and the numbers."""

import random
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu.plan import ANCHOR_FULL, BONUS, FLASH, STOCK, STOCK_FLASH

Row = dict[str, Any]
Claim = tuple[str, bool, str]
"""What is claimed, whether it holds, the numbers."""
AGREEMENT = 0.97
KEPT = 0.9
"""Share of the acceptance that a draft keeps when the target's weights are rounded; without its own head it would keep none."""
WIDTH_LOSS = 0.3
_READ_ROWS = re.compile(r"DSpark rank (\d+) read rows (\d+) to (\d+) of (\d+) from rank files, of (.+): (\d+) bytes of (\d+), and (\d+) bytes of headers")


@dataclass(frozen=True)
class RowsRead:
    """What one rank says of the rank files that it read: the plugin counts the bytes of its reads."""

    rank: int
    first: int
    stop: int
    total: int
    tensors: tuple[str, ...]
    row_bytes: int
    all_bytes: int
    """Of these tensors on all ranks."""
    header_bytes: int


def report(lines: list[Row]) -> list[Claim]:
    """All claims; a slice that was run again counts as it ran last."""
    by_name = {line["name"]: line for line in lines}
    return [claim for line in by_name.values() for claim in _CLAIMS[line["kind"]](line, by_name)]


def _failed(line: Row, _: dict[str, Row]) -> Iterator[Claim]:
    yield f"{line['name']} ran", False, line["error"].splitlines()[-1] if line["error"] else "no reason"


def _agreement(line: Row, _: dict[str, Row]) -> Iterator[Claim]:
    agreed, total = (sum(column) for column in zip(*line["rows"], strict=True))
    yield f"{line['name']}: slots agree with the reference engine", agreed / total >= AGREEMENT, f"{agreed}/{total} = {agreed / total:.2%}, at least {AGREEMENT:.0%}"


def _reference(_: Row, __: dict[str, Row]) -> Iterator[Claim]:
    yield from ()


def _server(line: Row, by_name: dict[str, Row]) -> Iterator[Claim]:
    name, greedy = line["name"], line["rows"]["greedy"]
    yield from _sampled(line)
    if ".graph" in name and (eager := _served(by_name, name.replace(".graph", ".eager"))):
        same = sum(left["output_ids"] == right["output_ids"] for left, right in zip(greedy, eager["rows"]["greedy"], strict=True))
        yield f"{name}: graph gives eager's tokens", same == len(greedy), f"{same}/{len(greedy)} prompts"
    alone, together = _alone_and_together(line)
    numbers = f"{alone:.3f} alone, {together:.3f} eight at once"
    if name == STOCK_FLASH:
        yield f"{name}: stock loses acceptance at concurrency 8, the defect that the plugin mends", alone - together > WIDTH_LOSS, numbers
        return
    yield f"{name}: acceptance does not depend on concurrency", abs(alone - together) < 0.05, numbers
    if (reference := by_name.get(f"{line['draft']}.reference")) and plain_target(line):
        accepted = [statistics.fmean(row) + 1 for row in reference["accepted"]] if reference["kind"] == "reference" else []
        yield from _paired(f"{name}: acceptance is the reference engine's", [acceptance([row]) for row in greedy], accepted)
    for special in (_stock, _flash, _ranks, _rounded):
        yield from special(line, by_name)


def _sampled(line: Row) -> Iterator[Claim]:
    """Cold requests draw the likeliest token each time: the sampled path with a known answer, up to ties of bfloat16."""
    if "sampled" in line["rows"]:
        rows = line["rows"]["sampled"]
        whole = sum(len(row["output_ids"]) == len(line["rows"]["greedy"][0]["output_ids"]) for row in rows)
        yield (
            f"{line['name']}: sampled requests end and accept drafts",
            whole == len(rows) and acceptance(rows) > 1.2,
            f"{whole}/{len(rows)} whole, {acceptance(rows):.3f} at temperature 1",
        )


def _stock(line: Row, by_name: dict[str, Row]) -> Iterator[Claim]:
    if line["name"] == STOCK and (ours := _served(by_name, f"{ANCHOR_FULL}.graph")):
        for what, left, right in (
            ("tokens", _tokens(line), _tokens(ours)),
            ("steps and accepted counts", _counts(line), _counts(ours)),
            ("drafted blocks", _drafted(line), _drafted(ours)),
        ):
            same = sum(one == other for one, other in zip(left, right, strict=True))
            yield f"full vocabulary: the plugin changes nothing, {what}", bool(left) and same == len(left), f"{same}/{len(left)} prompts as stock's"


def _flash(line: Row, by_name: dict[str, Row]) -> Iterator[Claim]:
    if line["name"] == FLASH and (stock := _served(by_name, STOCK_FLASH)):
        (before, before_8), (after, after_8) = _alone_and_together(stock), _alone_and_together(line)
        numbers = f"concurrency 1: {before:.3f} on stock, {after:.3f} here; concurrency 8: {before_8:.3f} on stock, {after_8:.3f} here"
        yield f"{BONUS} on FA3: the plugin gives back what stock loses", after_8 - before_8 > WIDTH_LOSS and after > before - 0.05, numbers


def _ranks(line: Row, by_name: dict[str, Row]) -> Iterator[Claim]:
    """Two ranks add up in another order: in bfloat16 some prompts leave the common path, and acceptance stays."""
    name = line["name"]
    if name.endswith(".tp2") and (one := _served(by_name, name.removesuffix(".tp2"))):
        same = sum(left == right for left, right in zip(_tokens(line), _tokens(one), strict=True))
        left, right = ([acceptance([row]) for row in side["rows"]["greedy"]] for side in (line, one))
        for what, holds, numbers in _paired(f"{name}: acceptance is that of one rank", left, right):
            yield what, holds, f"{numbers}; {same}/{len(left)} prompts token for token"
    if name.endswith(".split") and (whole := _served(by_name, name.removesuffix(".split"))):
        same = sum(left == right for left, right in zip(_tokens(line), _tokens(whole), strict=True))
        yield f"{name}: files per rank give the whole file's tokens", same == len(_tokens(line)), f"{same}/{len(_tokens(line))} prompts"
    if name.endswith(".split"):
        found = rows_read(line.get("log", ()))
        numbers = [f"rank {item.rank}: rows {item.first} to {item.stop}, {item.row_bytes + item.header_bytes} bytes of {item.all_bytes}" for item in found]
        yield f"{name}: each rank reads its rows only", own_rows_only(found, _tp(line)), ", ".join(numbers) or "no rank said what it read"


def rows_read(log: Iterable[str]) -> list[RowsRead]:
    """By rank; each line of the log that says so."""
    matches = [match.groups() for line in log if (match := _READ_ROWS.search(line))]
    found = [RowsRead(*map(int, numbers[:4]), tuple(numbers[4].split(" and ")), *map(int, numbers[5:])) for numbers in matches]
    return sorted(found, key=lambda item: item.rank)


def own_rows_only(found: list[RowsRead], ranks: int) -> bool:
    """Each rank once; rows that start where those of the rank before end; as many bytes as these rows have, and fewer than all with the headers."""
    if [item.rank for item in found] != list(range(ranks)) or len({(item.total, item.all_bytes, item.tensors) for item in found}) != 1:
        return False
    if [item.first for item in found] != [0, *(item.stop for item in found[:-1])] or found[-1].stop != found[-1].total:
        return False
    shares = [item.row_bytes * item.total == item.all_bytes * (item.stop - item.first) for item in found]
    return all(shares) and all(item.row_bytes + item.header_bytes < item.all_bytes for item in found)


def _rounded(line: Row, by_name: dict[str, Row]) -> Iterator[Claim]:
    if not plain_target(line) and (exact := _served(by_name, line["name"].rpartition(".")[0])):
        here, there = (acceptance(side["rows"]["greedy"]) for side in (line, exact))
        yield f"{line['name']}: the draft still fits the rounded target", here > KEPT * there, f"{here:.3f}, with the bfloat16 target {there:.3f}, at least {KEPT:.0%} of it"


_CLAIMS = {"failed": _failed, "agreement": _agreement, "reference": _reference, "server": _server}


def _served(by_name: dict[str, Row], name: str) -> Row | None:
    found = by_name.get(name)
    return found if found and found["kind"] == "server" else None


def plain_target(line: Row) -> bool:
    """Served with the target that the reference engine loads too."""
    words: list[str] = line["command"]
    return words[words.index("--model-path") + 1].endswith("tiny-target")


def _tp(line: Row) -> int:
    words: list[str] = line["command"]
    return int(words[words.index("--tp-size") + 1])


def _paired(claim: str, left: list[float], right: list[float]) -> Iterator[Claim]:
    if left and right:
        low, high = paired_interval(left, right)
        yield claim, low <= 0 <= high, f"95% interval of the paired difference [{low:.3f}, {high:.3f}] over {len(right)} prompts"


def paired_interval(left: list[float], right: list[float]) -> tuple[float, float]:
    """95% bootstrap interval of the mean difference, prompts resampled in pairs."""
    differences, generator = [a - b for a, b in zip(left, right, strict=True)], random.Random(7)  # noqa: S311
    means = sorted(statistics.fmean(generator.choices(differences, k=len(differences))) for _ in range(10_000))
    return means[249], means[9749]


def acceptance(rows: list[Row]) -> float:
    """Accepted plus bonus tokens over verify steps; 0 where nothing was drafted."""
    return sum(row["accepted"] + row["verify_steps"] for row in rows) / max(1, sum(row["verify_steps"] for row in rows))


def _alone_and_together(line: Row) -> tuple[float, float]:
    return acceptance(line["rows"]["greedy"]), acceptance(line["rows"]["greedy batched"])


def _tokens(line: Row) -> list[list[int]]:
    return [row["output_ids"] for row in line["rows"]["greedy"]]


def _counts(line: Row) -> list[tuple[int, int]]:
    return [(row["verify_steps"], row["accepted"]) for row in line["rows"]["greedy"]]


def _drafted(line: Row) -> list[list[tuple[int, list[int]]]]:
    """Start and drafted tokens of each block, by prompt."""
    blocks: dict[str, list[tuple[int, list[int]]]] = {}
    for block in line.get("blocks", ()):
        blocks.setdefault(block["request"], []).append((block["context"], block["drafted"]))
    return [blocks.get(row["request"], []) for row in line["rows"]["greedy"]]
