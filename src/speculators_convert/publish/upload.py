"""What a folder must satisfy before `hf upload` sends all of it. Pure: names and the text of the model card in, requirements out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.gate.codes import GATE_CODES, reason
from speculators_convert.gate.verdict import Reason, Requirement
from speculators_convert.publish import card

_CARD_KEYS = ("license", "base_model")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_DOCUMENT_SUFFIXES = (".md", ".txt", ".png", ".jpg", ".jpeg", ".svg", ".pdf")
_DOCUMENT_NAMES = ("license", "notice", ".gitattributes")
_REMAINS = (
    (re.compile(r"(^|/)(\.git|\.cache|\.ipynb_checkpoints)/"), "hf upload leaves it out"),
    (re.compile(r"(^|/)(__pycache__|wandb|runs|checkpoint-\d+)/"), "it comes from the training run"),
    (re.compile(r"(^|/)(optimizer|scheduler|scaler|rng_state|trainer_state|training_args)[^/]*$"), "it is the state of the training run"),
    (re.compile(r"(^|/)events\.out\.tfevents\."), "it is a training log"),
    (re.compile(r"\.(log|lock|tmp|incomplete|swp|pem|key)$|(^|/)(\.env|\.netrc|token|id_[a-z0-9]+)$"), "it is a log, a lock, or may hold a secret"),
)
_LEFT_OUT = 0
"""Index in `_REMAINS` of the names that hf upload never sends."""


def requirements(names: Sequence[str], readme: str | None, checkpoint: Checkpoint) -> tuple[Requirement, ...]:
    """Two requirements: nothing that must stay behind, and a model card that names licence and target."""
    files, text = tuple(_stray(names, checkpoint)), tuple(_card_reasons(readme))
    sent = [name for name in names if not _REMAINS[_LEFT_OUT][0].search(name)]
    return (
        Requirement(name="upload", title=GATE_CODES["GATE030"].title, met=not files, measured=f"{len(sent)} files would be uploaded", reasons=files),
        Requirement(name="model-card", title=GATE_CODES["GATE031"].title, met=not text, measured="README.md" if readme is not None else "none", reasons=text),
    )


def is_documentation(name: str) -> bool:
    """A file that describes the checkpoint and is no part of it."""
    path = PurePosixPath(name)
    return path.suffix.lower() in _DOCUMENT_SUFFIXES or path.stem.lower() in _DOCUMENT_NAMES or path.name in _DOCUMENT_NAMES


def front_matter(readme: str) -> dict[str, str]:
    """Top-level keys of the card's YAML block and the text after each; a list or mapping below a key counts as its value."""
    match = re.match(r"---[ \t]*\n(.*?\n)---[ \t]*(\n|$)", readme, re.DOTALL)
    if not match:
        return {}
    blocks = re.findall(r"^([A-Za-z_][\w-]*):(.*(?:\n[ \t-].*)*)", match[1], re.MULTILINE)
    return {key: value.strip() for key, value in blocks}


def _stray(names: Sequence[str], checkpoint: Checkpoint) -> Iterator[Reason]:
    refused = {info.path: info.refused for info in checkpoint.files if info.refused}
    for name in names:
        if _REMAINS[_LEFT_OUT][0].search(name):
            continue
        why = next((text for pattern, text in _REMAINS[1:] if pattern.search(name)), "")
        if not why and name.lower().endswith(_PICKLES):
            why = "a pickle runs code when it is loaded"
        if not why and name in refused:
            why = refused[name] or ""
        if why:
            yield reason("GATE030", f"{name} would be uploaded: {why}", measured=name, expected="not in the folder", file=name)


def _card_reasons(readme: str | None) -> Iterator[Reason]:
    if readme is None:
        yield reason(
            "GATE031",
            "the folder has no model card",
            measured="no README.md",
            expected="README.md with license and base_model",
            hint="Write README.md with that front matter; --card then adds the measured section",
            file="README.md",
        )
        return
    found = front_matter(readme)
    for key in _CARD_KEYS:
        if not found.get(key):
            yield reason("GATE031", f"the model card does not state {key}", measured=", ".join(found) or "no front matter", expected=key, file="README.md")
    if fault := card.marker_fault(readme):
        yield reason("GATE031", fault, file="README.md", hint="Remove the broken section, then run publish-check with --card again")
