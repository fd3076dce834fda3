"""The null draft of a draft on the Hub: byte for byte that of the same files in a folder."""

from __future__ import annotations

import json
from pathlib import Path

from hub_files import DRAFT
from local_hub import LocalHub

from speculators_convert.checkpoint import collect
from speculators_convert.formats import detect
from speculators_convert.smoke.null_draft import write_null_draft
from speculators_convert.sources import LocalSource, Source
from speculators_convert.sources.hub import open_hub, parse_reference
from speculators_convert.spec import DraftSpec, Settings


def read(source: Source) -> DraftSpec:
    checkpoint = collect(source)
    found = detect(checkpoint).format
    assert found is not None
    return found.read(checkpoint, Settings()).spec


def test_hub_and_folder_give_the_same_bytes(hub: LocalHub, tmp_path: Path) -> None:
    reference = parse_reference("org/draft")
    assert reference is not None
    folders = {}
    for name, source in (("hub", open_hub(reference, endpoint=hub.url)), ("folder", LocalSource(DRAFT))):
        spec, target = read(source), tmp_path / f"{name}-target"
        target.mkdir()
        (target / "config.json").write_text(json.dumps({"vocab_size": spec.target_vocab_size}))
        out = write_null_draft(spec, source, target, tmp_path / name)
        folders[name] = {path.name: path.read_bytes() for path in out.iterdir()}
    assert folders["hub"] == folders["folder"]
    assert set(folders["hub"]) == {"config.json", "model.safetensors"}
