"""A running local Hub for each test, with one draft and one large sparse file in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hub_files import DRAFT, LARGE_BYTES, MARK, ROOT
from local_hub import Body, LocalHub, run_hub


@pytest.fixture(scope="session")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 MiB, a hole but for 16 known bytes in the middle."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(LARGE_BYTES)
        file.seek(LARGE_BYTES // 2)
        file.write(MARK)
    return path


@pytest.fixture
def hub(large_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    """`org/draft` (a real draft) and `org/large` (config.json and the sparse file); no token, an empty cache."""
    from huggingface_hub import constants  # noqa: PLC0415
    from huggingface_hub.utils import close_session  # noqa: PLC0415

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    close_session()
    with run_hub() as running:
        running.add("org/draft", DRAFT)
        running.add("org/large", {"config.json": Body(b'{"model_type": "x"}'), "model.safetensors": Body(large_file, lfs=True)})
        yield running
    close_session()


@pytest.fixture
def environment(hub: LocalHub, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Environment of a child process that uses the local Hub."""

    def make(**more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_") and "proxy" not in key.lower()}
        return {
            **kept,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": str(ROOT / "src"),
            **more,
        }

    return make
