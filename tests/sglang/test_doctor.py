"""`spec-convert doctor` in an SGLang environment: what a user sees, and what it says of a release that is allowed without a test."""

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

from sglang_harness.environment import PYTHON, Site

from speculators_convert.sglang_plugin import release

HOOK = "sglang.srt.speculative.dspark_components.dspark_draft.draft_markov_block"


def doctor(site: Site, module: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PYTHON), "-W", "ignore", "-m", module, *words], env={**site.environ(), **environ}, capture_output=True, text=True, timeout=300, check=False)


def test_what_a_user_sees(site: Site) -> None:
    """Versions, entry points, live hooks with their targets, GPUs, NCCL; status 0 where a draft would be served."""
    done = doctor(site, "speculators_convert", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for pattern in (
        r"python 3\.\d+\.\d+ ",
        r"sglang +0\.5\.23$",
        rf"speculators-convert +{re.escape(metadata.version('speculators-convert'))}$",
        r"plugin  speculators_dspark = speculators_convert\.sglang_plugin:register$",
        rf"hook    live +{re.escape(HOOK)}  draft over the reduced vocabulary",
        r"cuda 1[3-9]\.\d+  nccl 2\.\d+",
    ):
        assert any(re.match(pattern, line) for line in lines), f"{pattern}\n{done.stdout}"
    assert not any(line.startswith("hook    NOT LIVE") for line in lines)
    assert lines[-1] == "a Speculators draft would be served here"


def test_an_untested_release_that_is_allowed_is_on_record(site: Site, tmp_path: Path) -> None:
    """Every evidence file carries this: which release it was, and that it was allowed. The module alone needs no command-line libraries."""
    record = tmp_path / "sglang-0.5.99.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.99\n")
    done = doctor(site, "speculators_convert.sglang_plugin.doctor", PYTHONPATH=f"{tmp_path}:{site.folder}", **{release.ALLOW_VARIABLE: "1"})
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["problems"], found["versions"]["sglang"], found["tested_sglang"]) == ([], "0.5.99", "0.5.23")
    assert found["untested_allowed"] is True
    assert found["environment"][release.ALLOW_VARIABLE] == "1"
