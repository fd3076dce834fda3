"""Text forms of a rewrite: the plan and the receipt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speculators_convert.geometry import human_bytes
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.rewrite.receipt import RECEIPT_NAME, Receipt


def plan_lines(plan: RewritePlan) -> Iterator[str]:
    """What would be written, computed and left out."""
    yield f"layout {plan.layout}: {len(plan.files)} files, {human_bytes(plan.size_bytes)} (nothing written)"
    for file in plan.files:
        copied = sum(tensor.made == "copied" for tensor in file.tensors)
        tensors = f", {copied} tensors copied, {len(file.tensors) - copied} computed" if file.tensors else ""
        yield f"  {file.path}  {human_bytes(file.size_bytes)}{tensors}"
    yield from _rest(plan.dropped, plan.notes)


def receipt_lines(receipt: Receipt, out: Path) -> Iterator[str]:
    """What was written, with the digest of each file."""
    tensors = receipt.predicate.tensors
    copied = sum(tensor.made == "copied" for tensor in tensors)
    yield f"wrote {out} in layout {receipt.predicate.layout}: {len(receipt.subject)} files, {copied} tensors copied byte for byte, {len(tensors) - copied} computed"
    for subject in receipt.subject:
        yield f"  {subject.digest.sha256}  {subject.name}"
    yield from _rest(receipt.predicate.dropped, receipt.predicate.notes)
    yield f"receipt: {out / RECEIPT_NAME}"


def _rest(dropped: tuple[object, ...], notes: tuple[str, ...]) -> Iterator[str]:
    for item in dropped:
        yield f"  left out {getattr(item, 'kind', '')} {getattr(item, 'name', '')}: {getattr(item, 'why', '')}"
    for note in notes:
        yield f"  note: {note}"
