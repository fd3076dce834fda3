"""What `hf upload` would send: strays and an incomplete model card fail, documents and the tool's own files do not."""

from __future__ import annotations

import pytest

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.publish.upload import front_matter, is_documentation, requirements
from speculators_convert.sources import FileInfo, SourceId

SOUND = ("config.json", "model.safetensors", "README.md", "LICENSE", ".gitattributes", "spec-convert.receipt.json", "smoke.json")
CARD = "---\nlicense: apache-2.0\nbase_model:\n  - org/target\n---\n# Draft\n"


def checkpoint(*refused: str) -> Checkpoint:
    return Checkpoint(SourceId("folder", "x"), tuple(FileInfo(name, 0, refused="a link that leaves the folder") for name in refused), {}, {}, {})


def test_a_sound_folder() -> None:
    upload, card = requirements(SOUND, CARD, checkpoint())
    assert upload.met
    assert card.met
    assert upload.measured == "7 files would be uploaded"


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt",
        "pytorch_model.bin",
        "checkpoint-500/model.safetensors",
        "__pycache__/x.pyc",
        "runs/events.out.tfevents.1",
        "train.log",
        ".env",
        "token",
        "rng_state_0.pth",
        "scheduler.safetensors",
        "server.pem",
    ],
)
def test_what_must_stay_behind(name: str) -> None:
    upload = requirements((*SOUND, name), CARD, checkpoint())[0]
    assert [(item.code, item.file) for item in upload.reasons] == [("GATE030", name)]


def test_what_hf_upload_leaves_out_anyway_does_not_count() -> None:
    upload = requirements((*SOUND, ".git/config", ".cache/huggingface/x.lock"), CARD, checkpoint())[0]
    assert (upload.met, upload.measured) == (True, "7 files would be uploaded")


def test_a_link_out_of_the_folder() -> None:
    upload = requirements((*SOUND, "extra.json"), CARD, checkpoint("extra.json"))[0]
    assert [item.message for item in upload.reasons] == ["extra.json would be uploaded: a link that leaves the folder"]


@pytest.mark.parametrize(
    ("card", "missing"),
    [
        (None, 1),
        ("# no front matter\n", 2),
        ("---\nlicense: mit\n---\n", 1),
        ("---\nlicense:\nbase_model: org/t\n---\n", 1),
        ("---\nlicense: mit\nbase_model: org/t\n", 2),
        (CARD + "<!-- spec-convert:begin -->\n", 1),
    ],
)
def test_an_incomplete_card(card: str | None, missing: int) -> None:
    found = requirements(SOUND, card, checkpoint())[1]
    assert [item.code for item in found.reasons] == ["GATE031"] * missing


def test_front_matter() -> None:
    assert front_matter(CARD + "license: other\n") == {"license": "apache-2.0", "base_model": "- org/target"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("README.md", True), ("LICENSE", True), ("LICENSE.txt", True), (".gitattributes", True), ("config.json", False), ("model.safetensors", False), ("run.py", False)],
)
def test_documents(name: str, expected: bool) -> None:
    assert is_documentation(name) is expected
