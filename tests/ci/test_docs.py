"""The docs: a strict build checks links and anchors, and the commands of the quickstart run as they stand, in order, in a clean clone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ci.conftest import ROOT, environment

from speculators_convert.policies import parse_policy
from speculators_convert.report import reporters

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _blocks(page: str, language: str) -> list[str]:
    return [text for found, text in _FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8")) if found == language]


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=environment(NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site/quickstart.html").exists()


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs/index.md").write_text("[gone](absent.md)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, env=environment(NO_MKDOCS_2_WARNING="1"), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0


def test_relative_links_of_all_pages_lead_to_files() -> None:
    broken = []
    for page in _pages():
        for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            path = link.partition("#")[0]
            if path and not re.match(r"[a-z]+:", path) and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "fixtures").symlink_to(ROOT / "fixtures")
    command = tmp_path / "bin/spec-convert"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m speculators_convert "$@"\n')
    command.chmod(0o755)
    blocks = [block for block in _blocks("quickstart.md", "sh") if "pip install" not in block]
    assert len(blocks) >= 8
    script = "set -eux\n" + "\n".join(blocks)
    env = environment(PATH=f"{command.parent}:/usr/bin:/bin", PYTHONPATH=str(ROOT / "src"), OMP_NUM_THREADS="1")
    done = subprocess.run(["sh", "-c", script], cwd=clone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    card = (clone / "upload/README.md").read_text()
    assert "spec-convert:begin" in card
    assert "prompts |" in card
    assert json.loads((clone / "spec-convert.sarif").read_text())["version"] == "2.1.0"


def test_the_policy_in_the_docs_is_one() -> None:
    assert [parse_policy(block.encode(), "gate.md").name for block in _blocks("gate.md", "json")] == ["team"]


def test_the_reference_lists_what_there_is() -> None:
    gate = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    assert f"`--format {'|'.join(name for name in ('text', 'json', 'sarif', 'junit', 'markdown'))}`" in gate
    assert set(reporters()) == {"text", "json", "sarif", "junit", "markdown"}
    schemas = (ROOT / "docs/schemas.md").read_text(encoding="utf-8")
    assert {path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.schema.json")} == set(re.findall(r"^\| `([\w-]+)` \|", schemas, re.MULTILINE))


@pytest.mark.parametrize(("block", "example"), [(0, "examples/github/gate.yml"), (1, "examples/pre-commit-config.yaml")])
def test_the_snippets_are_those_of_the_examples(block: int, example: str) -> None:
    lines = {line.strip() for line in (ROOT / example).read_text(encoding="utf-8").splitlines()}
    assert [line for line in _blocks("ci.md", "yaml")[block].splitlines() if line.strip() not in lines] == []


def test_the_recorded_session_of_the_readme_is_what_the_commands_say() -> None:
    done = subprocess.run([sys.executable, "tools/readme.py", "--check"], cwd=ROOT, env=environment(PYTHONPATH=str(ROOT / "src")), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "$ spec-convert gate " in (ROOT / "README.md").read_text(encoding="utf-8")
