"""Each folder below `fixtures/good/` is a test: the recognised format and its reading against a hand-written `expected.json`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from speculators_convert.checkpoint import Checkpoint, collect
from speculators_convert.formats import FORMATS, detect
from speculators_convert.sources import LocalSource
from speculators_convert.spec import DraftSpec, Settings

ROOT = Path(__file__).parents[1]
GOOD = ROOT / "fixtures" / "good"
FOLDERS = sorted(path.name for path in GOOD.iterdir() if path.is_dir())


def loaded(name: str) -> tuple[Checkpoint, dict[str, Any]]:
    return collect(LocalSource(GOOD / name)), json.loads((GOOD / name / "expected.json").read_text())


def conflicts(spec: DraftSpec) -> list[str]:
    """Facts for which two pieces of evidence say different things."""
    said: dict[str, set[str]] = {}
    for item in spec.evidence:
        said.setdefault(item.fact, set()).add(item.says)
    return sorted(fact for fact, values in said.items() if len(values) > 1)


@pytest.mark.parametrize("name", FOLDERS)
def test_reading_is_what_a_person_wrote(name: str) -> None:
    checkpoint, expected = loaded(name)
    assert checkpoint.faults == ()
    detection = detect(checkpoint)
    assert detection.format is not None
    reading = detection.format.read(checkpoint, Settings())
    spec = reading.spec
    assert reading.problems == ()
    read = json.loads(spec.model_dump_json())
    measured: dict[str, Any] = {key: read[key] for key in expected if key in read}
    measured |= {
        "conflicts": conflicts(spec),
        "disputed": sorted(item.fact.removesuffix("_disputed") for item in spec.evidence if item.fact.endswith("_disputed")),
        "unknown_tensors": len(spec.unknown_tensors),
    }
    if spec.bundled:
        measured["bundled"] = {key: value for key, value in measured["bundled"].items() if key != "tensor_bytes"}
    assert measured == expected


@pytest.mark.parametrize("name", FOLDERS)
def test_the_decision_is_explained(name: str) -> None:
    checkpoint, _ = loaded(name)
    detection = detect(checkpoint)
    assert detection.format is not None
    assert all(detection.why)
    spec = detection.format.read(checkpoint, Settings()).spec
    facts = {item.fact for item in spec.evidence if not item.fact.endswith(("_disputed", "_engines", "_values"))}
    assert {"anchor", "gamma", "target_layer_ids", "mask_token_id", "vocab_size"} <= facts
    for fact in facts:
        assert [item.decides for item in spec.evidence if item.fact == fact].count(True) == 1, fact


@pytest.mark.parametrize("name", FOLDERS)
def test_evidence_names_its_place(name: str) -> None:
    checkpoint, _ = loaded(name)
    detection = detect(checkpoint)
    assert detection.format is not None
    files = tuple(info.path for info in checkpoint.files)
    for item in detection.format.read(checkpoint, Settings()).spec.evidence:
        assert item.says
        pointer = item.source.partition("#")[2] if item.source.startswith(files) else ""
        if pointer.startswith("/") and not item.source.endswith(".gguf"):
            key = pointer.split()[0].strip(":").split("/")[1]
            assert key in checkpoint.config or key in next(iter(checkpoint.gguf.values())).metadata, item


def test_each_format_has_a_fixture() -> None:
    assert {loaded(name)[1]["format"] for name in FOLDERS} == {item.name for item in FORMATS}


def test_the_same_taps_read_alike_from_every_packaging() -> None:
    """[2,10,20,30,37] of Speculators and llama.cpp, [1,9,19,29,36] of all others."""
    stated: dict[str, set[tuple[int, ...]]] = {}
    for name in FOLDERS:
        checkpoint, _ = loaded(name)
        detection = detect(checkpoint)
        assert detection.format is not None
        if detection.format.name != "bundled":
            spec = detection.format.read(checkpoint, Settings()).spec
            assert spec.target_layer_ids == (1, 9, 19, 29, 36)
            stated.setdefault(detection.format.name, set()).update(_raw_ids(checkpoint))
    assert stated["speculators"] == {(2, 10, 20, 30, 37)}
    assert stated["gguf"] == {(2, 10, 20, 30, 37), (1, 9, 19, 29, 36)}  # the legacy fork keeps output ids
    assert stated["nemotron"] == {(2, 10, 20, 30, 37), (1, 9, 19, 29, 36)}  # both spellings
    assert all(stated[name] == {(1, 9, 19, 29, 36)} for name in ("deepspec", "specforge", "modelopt", "torchspec", "dflash", "nemo"))


def _raw_ids(checkpoint: Checkpoint) -> set[tuple[int, ...]]:
    tables = [checkpoint.config, checkpoint.config.get("dflash_config"), *(file.metadata for file in checkpoint.gguf.values())]
    keys = [(table, key) for table in tables if table for key in table if key.endswith(("layer_ids", "target_layers")) and isinstance(table[key], list)]
    return {tuple(table[key]) for table, key in keys}


def test_bytes_are_those_of_the_sums() -> None:
    for line in (GOOD / "SHA256SUMS").read_text().splitlines():
        digest, path = line.split("  ")
        assert hashlib.sha256((GOOD / path).read_bytes()).hexdigest() == digest, path


def test_the_generator_writes_the_same_bytes() -> None:
    command = [sys.executable, ROOT / "tools" / "make_formats.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert (done.returncode, done.stdout.splitlines()[-1].split(", ")[1]) == (0, "0 differ"), done.stdout + done.stderr
