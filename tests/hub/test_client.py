"""huggingface_hub itself against the local Hub: what works there works here for the same reasons."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from hub_files import DRAFT
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from local_hub import Fault, LocalHub


def test_model_info(hub: LocalHub) -> None:
    info = huggingface_hub.HfApi(endpoint=hub.url).model_info("org/draft", files_metadata=True)
    assert info.sha == hub.repositories["org/draft"].refs["main"]
    assert {item.rfilename: item.size for item in info.siblings or ()} == {path.name: path.stat().st_size for path in DRAFT.iterdir()}


def test_tree_pages(hub: LocalHub) -> None:
    hub.page_size = 1
    tree = list(huggingface_hub.HfApi(endpoint=hub.url).list_repo_tree("org/draft", recursive=True))
    assert [item.path for item in tree] == ["config.json", "model.safetensors"]
    assert hub.requests == 2


def test_download(hub: LocalHub) -> None:
    path = huggingface_hub.hf_hub_download("org/draft", "model.safetensors", endpoint=hub.url)
    assert Path(path).read_bytes() == (DRAFT / "model.safetensors").read_bytes()
    assert hub.leaked_tokens == 0


def test_download_resumes_after_a_cut(hub: LocalHub) -> None:
    hub.faults.append(Fault("cdn", "cut", after_bytes=500_000))
    path = huggingface_hub.hf_hub_download("org/draft", "model.safetensors", endpoint=hub.url)
    assert Path(path).read_bytes() == (DRAFT / "model.safetensors").read_bytes()


def test_snapshot(hub: LocalHub) -> None:
    folder = Path(huggingface_hub.snapshot_download("org/draft", endpoint=hub.url))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {path.name: path.read_bytes() for path in DRAFT.iterdir()}


def test_safetensors_metadata(hub: LocalHub) -> None:
    metadata = huggingface_hub.HfApi(endpoint=hub.url).get_safetensors_metadata("org/draft")
    assert metadata.files_metadata["model.safetensors"].tensors["d2t"].dtype == "I64"


def test_errors(hub: LocalHub) -> None:
    api = huggingface_hub.HfApi(endpoint=hub.url)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/missing")
    with pytest.raises(RevisionNotFoundError):
        api.model_info("org/draft", revision="missing")
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download("org/draft", "missing.json")
    hub.repositories["org/draft"].gated = True
    with pytest.raises(GatedRepoError):
        api.hf_hub_download("org/draft", "config.json")


def inspect(environment: dict[str, str], reference: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "speculators_convert", "inspect", reference, "--format", "json"], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_command_line_with_endpoint_and_token_variables(hub: LocalHub, environment: Callable[..., dict[str, str]]) -> None:
    hub.tokens["hf_good"] = "accepted"
    hub.repositories["org/draft"].private = True
    refused = inspect(environment(), "org/draft")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"]["message"].startswith("neither a folder here nor a repository")
    assert "Traceback" not in refused.stderr
    report = json.loads(inspect(environment(HF_TOKEN="hf_good"), "org/draft").stdout)  # noqa: S106
    assert report["source"]["kind"] == "hub"
    assert report["source"]["revision"] == hub.repositories["org/draft"].refs["main"]
    assert report["format"]["name"] == "speculators"


def test_command_line_offline(hub: LocalHub, environment: Callable[..., dict[str, str]]) -> None:
    missing = inspect(environment(HF_HUB_OFFLINE="1"), "org/draft")
    assert missing.returncode == 3
    assert "offline mode is on" in json.loads(missing.stdout)["error"]["message"]
    download = [sys.executable, "-c", "import huggingface_hub; huggingface_hub.snapshot_download('org/draft')"]
    subprocess.run(download, env=environment(), check=True, timeout=120, capture_output=True)
    online = json.loads(inspect(environment(), "org/draft").stdout)
    before = hub.requests
    offline = json.loads(inspect(environment(HF_HUB_OFFLINE="1"), "org/draft").stdout)
    assert hub.requests == before
    assert offline["source"]["revision"] == hub.repositories["org/draft"].refs["main"]
    assert (offline["spec"], offline["findings"], offline["source"]["kind"]) == (online["spec"], online["findings"], "hub")


def test_starting_up_does_not_import_the_client(environment: Callable[..., dict[str, str]]) -> None:
    code = "import sys, speculators_convert.api; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
