"""What `inspect` costs over the network, for the shape of a published 1.90 GB draft: counted by the server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_files import ROOT
from local_hub import Body, LocalHub

REPOSITORY = "RedHatAI/Qwen3.6-35B-A3B-speculator.dspark"
MAX_BYTES, MAX_REQUESTS, LEAST_RATIO = 600_000, 12, 1_000


@pytest.fixture(scope="session")
def sparse_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sparse draft: 66 tensors, real vocabulary tables."""
    out = tmp_path_factory.mktemp("sparse") / "draft"
    subprocess.run([sys.executable, ROOT / "tools" / "make_sparse.py", out], check=True, env={"PYTHONPATH": str(ROOT / "src")}, timeout=60)
    return out


def test_inspect_stays_in_its_budget(hub: LocalHub, environment: Callable[..., dict[str, str]], sparse_draft: Path) -> None:
    weights = Body(sparse_draft / "model.safetensors", lfs=True, sha256="5" * 64)
    hub.add(
        REPOSITORY,
        {
            ".gitattributes": Body(b"*.safetensors filter=lfs\n" * 30),
            "README.md": Body(b"x" * 9000),
            "config.json": Body((sparse_draft / "config.json").read_bytes()),
            "model.safetensors": weights,
        },
    )
    done = subprocess.run(
        [sys.executable, "-m", "speculators_convert", "inspect", REPOSITORY, "--format", "json"], env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    report = json.loads(done.stdout)
    assert (done.returncode, len(report["tensors"]), report["spec"]["d2t"]) == (0, 66, "offset")
    assert report["source"]["total_bytes"] > 1_900_000_000
    assert hub.requests <= MAX_REQUESTS
    assert hub.sent_bytes <= MAX_BYTES
    assert weights.size / hub.sent_bytes >= LEAST_RATIO
    tables = 32_000 * 8 + 248_320
    assert hub.sent_bytes >= tables, "the vocabulary tables were not read"
