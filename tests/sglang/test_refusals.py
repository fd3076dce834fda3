"""Starts that must end before anything is served, with the reason in the log."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from sglang_harness.environment import TRAINED, Site
from sglang_harness.server import NotStartedError, serve

DRAFT = TRAINED / "tiny-bonus-reduced-vanilla"


def refused(site: Site, draft: Path, log: Path, **options: object) -> str:
    with pytest.raises(NotStartedError), serve(site, draft, log, **options):
        pass
    return log.read_text(errors="replace")


def test_mapping_out_of_range_ends_the_launch(site: Site, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(DRAFT, draft)
    data = bytearray((draft / "model.safetensors").read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    start = 8 + length + json.loads(data[8 : 8 + length])["d2t"]["data_offsets"][0]
    data[start + 8 * 511 : start + 8 * 512] = np.int64(600).tobytes()
    (draft / "model.safetensors").write_bytes(data)
    text = refused(site, draft, tmp_path / "log")
    assert "RefusedError" in text
    assert "DSP105" in text


def test_another_target_ends_the_launch(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(TRAINED / "tiny-target", target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}))
    assert "SGLang cannot capture this layer; measured 3; expected ids up to 2" in refused(site, DRAFT, tmp_path / "log", target=target)


def distribution(folder: Path, name: str, version: str, **files: str) -> str:
    """A distribution that only has its record, first on the returned path."""
    record = folder / f"{name}-{version}.dist-info"
    record.mkdir()
    for file, text in {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", **files}.items():
        (record / file).write_text(text)
    return str(folder)


def test_another_release_ends_the_launch(site: Site, tmp_path: Path) -> None:
    path = distribution(tmp_path, "sglang", "0.5.99")
    text = refused(site, DRAFT, tmp_path / "log", PYTHONPATH=f"{path}:{site.folder}")
    assert "SGLang 0.5.99 is installed, tested with 0.5.23 only: install sglang==0.5.23, or set SPEC_CONVERT_SGLANG_UNTESTED=1 to try it" in text


STOLEN = "sglang.srt.speculative.dspark_components.dspark_draft.select_draft_hidden_without_anchor"
THIEF = f"""
import multiprocessing

def register():
    from sglang.srt.plugins.hook_registry import HookRegistry
    if multiprocessing.parent_process() is not None:
        HookRegistry._patched.add("{STOLEN}")
"""


def test_a_hook_that_is_lost_in_a_scheduler_process_ends_the_start(site: Site, tmp_path: Path) -> None:
    """Another plugin makes SGLang skip one of our hooks, in the processes that it starts only: SGLang itself says nothing."""
    (tmp_path / "hook_thief.py").write_text(THIEF)
    path = distribution(tmp_path, "hook-thief", "0", **{"entry_points.txt": "[sglang.srt.plugins]\nhook_thief = hook_thief:register\n"})
    text = refused(site, DRAFT, tmp_path / "log", plugins="speculators_dspark,cpu_stand_in,hook_thief", PYTHONPATH=f"{path}:{site.folder}")
    assert "a hook of the SGLang plugin is not in force" in text
    assert f"{STOLEN}: SGLang did not apply the hook" in text


def test_switched_off_means_not_served(site: Site, tmp_path: Path) -> None:
    """SGLANG_PLUGINS without ours: stock SGLang does not know the file and says so."""
    assert "Unrecognized model" in refused(site, DRAFT, tmp_path / "log", plugins="cpu_stand_in")


def test_gamma_of_the_command_line_is_checked_against_the_draft(site: Site, tmp_path: Path) -> None:
    """SGLang's own cross-check sees the gamma of the Speculators config: 6, one less than its block_size."""
    text = refused(site, DRAFT, tmp_path / "log", flags=["--speculative-num-draft-tokens", "8"])
    assert "speculative_num_draft_tokens must equal gamma + 1 (= 7 for gamma=6)" in text
