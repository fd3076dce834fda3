"""Tests against the stock SGLang of `tools/sglang_env.sh`, skipped with the reason where it is not installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sglang_harness.environment import PYTHON, Site, build_site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts SGLang, which is what asks for `site`; the other tests of this folder need none of it."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.sglang)
            if not PYTHON.exists():
                item.add_marker(pytest.mark.skip(reason=f"no SGLang environment at {PYTHON}: run tools/sglang_env.sh"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The project and the CPU stand-in, installed by pip into a folder of their own."""
    return build_site(tmp_path_factory.mktemp("site"))
