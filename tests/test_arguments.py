"""Arguments that contradict, stand for nothing, or name what UTF-8 cannot: a documented status and what to do, and results that every reader takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import FULL, TARGET
from command import spec_convert
from speculators_convert.bench import plan
from speculators_convert.errors import UsageError
from speculators_convert.results.bench import BenchOptions
from speculators_convert.results.smoke import CheckpointDigest
from speculators_convert.workloads.base import Request, Workload

PROMPTS = Path(__file__).parents[1] / "fixtures" / "trained" / "prompts.jsonl"
SHORT = ("--prompts", PROMPTS, "--max-new-tokens", 4, "--floor", 0)
NOT_UTF8 = os.fsdecode(b"caf\xe9")
SPELLED_OUT = "caf\\udce9"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [(("gate", FULL, "--target", ""), "--target"), (("gate", FULL, "--target="), "--target"), (("smoke", FULL, "--modes", ""), "--modes"), (("inspect", ""), "")],
)
def test_an_empty_argument_stands_for_no_default(arguments: tuple[object, ...], where: str) -> None:
    outcome = spec_convert(*arguments, "--format", "json")
    assert (outcome.status, outcome.json["error"]["message"], outcome.json["error"]["where"]) == (2, "an argument is empty", where)


@pytest.mark.parametrize("option", ["--device=tpu", "--device=cuda:1", "--dtype=float16"])
@pytest.mark.parametrize("command", [("smoke", FULL), ("probe", FULL), ("bench", FULL, "--engine", "reference", "--out", "never")])
def test_devices_and_types_that_no_engine_has(command: tuple[object, ...], option: str) -> None:
    outcome = spec_convert(*command, "--target", TARGET, option)
    assert outcome.status == 2
    assert option.partition("=")[0] in outcome.stderr
    assert not Path("never").exists()


@pytest.mark.engine
def test_a_mode_stands_once() -> None:
    outcome = spec_convert("smoke", FULL, "--target", TARGET, "--engine", "reference", "--modes", "graph,eager,graph", "--format", "json")
    assert (outcome.status, outcome.json["error"]["where"], outcome.json["error"]["expected"]) == (2, "--modes", "graph,eager")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--attention-backend", "fa3"), "--attention-backend"),
        (("--draft-attention-backend", "nonsense", "--no-control"), "--draft-attention-backend, --no-control"),
        (("--server-arg", "--x", "--concurrency", 4, "--parallel", 2), "--server-arg, --concurrency, --parallel"),
    ],
)
def test_what_a_server_is_told_needs_one(words: tuple[object, ...], where: str) -> None:
    outcome = spec_convert("smoke", FULL, "--target", TARGET, "--engine", "reference", *words, "--format", "json")
    assert (outcome.status, outcome.json["error"]["where"]) == (2, where)


@pytest.mark.engine
@pytest.mark.parametrize("words", [("--attention-backend", "fa3"), ("--draft-attention-backend", "fa3"), ("--stock", "drafted")])
def test_bench_tells_the_reference_engine_nothing_of_servers(words: tuple[str, ...], tmp_path: Path) -> None:
    outcome = spec_convert("bench", FULL, "--target", TARGET, "--engine", "reference", "--workload", PROMPTS, "--out", tmp_path / "run", *words)
    assert outcome.status == 2
    assert words[0] in outcome.stderr


def test_an_arm_has_a_name_that_can_be_a_folder(tmp_path: Path) -> None:
    for name in ("../x", "a/b", NOT_UTF8):
        outcome = spec_convert("bench", FULL, "--out", tmp_path / "run", "--also", f"{name}={FULL}", "--format", "json")
        assert (outcome.status, outcome.json["error"]["where"]) == (2, "--also")


def test_a_concurrency_stands_once() -> None:
    digest = CheckpointDigest(digest="0", files={}, reference="d")
    with pytest.raises(UsageError, match="stands twice"):
        plan.make(BenchOptions(concurrency=(2, 1, 2)), digest, {"drafted": digest}, Workload("w", (Request("a", "", (1, 2)),)), {})


def test_bench_looks_for_the_place_of_its_page_before_it_runs(tmp_path: Path) -> None:
    for page in (tmp_path / "none" / "page.html", tmp_path):
        outcome = spec_convert("bench", FULL, "--target", TARGET, "--out", tmp_path / "run", "--html", page)
        assert outcome.status == 3
        assert "E310" in outcome.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("gate", FULL, "--evidence", "/dev/zero"), 1, "GATE011"),
        (("gate", FULL, "--policy", "/dev/zero"), 3, "E300"),
        (("gate", FULL, "--card", "/dev/zero"), 3, "E300"),
        (("normalize", FULL, "--target", TARGET, "--layout", "speculators", "--reduce-vocab", "/dev/zero", "--dry-run"), 3, "E300"),
        (("normalize", FULL, "--target", TARGET, "--layout", "speculators", "--reduce-vocab", 600, "--corpus", "/dev/zero", "--dry-run"), 3, "E300"),
    ],
)
def test_a_device_that_never_ends_is_not_read_to_its_end(words: tuple[object, ...], status: int, said: str) -> None:
    outcome = spec_convert(*words)
    assert outcome.status == status
    assert said in outcome.stdout + outcome.stderr


@pytest.mark.engine
def test_prompts_that_never_end() -> None:
    outcome = spec_convert("smoke", FULL, "--target", TARGET, "--engine", "reference", "--prompts", "/dev/zero")
    assert (outcome.status, "File too large" in outcome.stderr) == (3, True)


def test_evidence_comes_through_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write('{{}}')"]):
        assert "not a smoke result" in spec_convert("gate", FULL, "--evidence", pipe).stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_that_cannot_be_written_keeps_its_status(form: str) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "speculators_convert", "explain", "NONE999", "--format", form]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error E200")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose name is not UTF-8, with a draft in it."""
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    shutil.copytree(FULL, folder / "draft")
    return folder


@pytest.mark.engine
@pytest.mark.parametrize("ranks", [1, 2])
def test_smoke_of_such_a_draft_is_evidence(place: Path, ranks: int) -> None:
    draft, result = place / "draft", place / "result.json"
    assert spec_convert("smoke", draft, "--target", TARGET, "--engine", "reference", "--tp", ranks, *SHORT, "--out", result, "--report", place / "page.html").status == 0
    assert json.loads(result.read_bytes())["checkpoint"]["reference"].endswith(f"{SPELLED_OUT}/draft")
    reports = [word for form in ("json", "sarif", "junit", "markdown", "text") for word in ("--also", f"{form}={place / form}")]
    outcome = spec_convert("gate", draft, "--target", TARGET, "--evidence", result, *reports, "--card", place / "README.md")
    assert outcome.status == 0, outcome.stdout
    assert "caf%E9/draft/" in (place / "sarif").read_text()
    for name in ("json", "sarif", "junit", "markdown", "text", "README.md", "page.html"):
        (place / name).read_bytes().decode("utf-8")


@pytest.mark.engine
def test_bench_of_such_a_draft_goes_on_and_is_computed_again(place: Path) -> None:
    words = ("--target", TARGET, "--engine", "reference", "--workload", PROMPTS, "--output-tokens", 4, "--repeats", 1, "--warm-up", 1)
    first = spec_convert("bench", place / "draft", *words, "--out", place / "run", "--format", "json")
    assert first.status == 0, first.stderr
    for again in (spec_convert("bench", place / "draft", *words, "--out", place / "run", "--format", "json"), spec_convert("bench", "analyze", place / "run", "--format", "json")):
        assert (again.status, again.stdout) == (0, first.stdout)


@pytest.mark.engine
@pytest.mark.parametrize("command", [("smoke",), ("probe",), ("bench", "--engine", "reference", "--out")])
def test_a_target_of_such_a_name_is_refused_before_a_library_fails_over_it(place: Path, command: tuple[str, ...]) -> None:
    shutil.copytree(TARGET, place / "target")
    out = (place / "run",) if command[-1] == "--out" else ()
    outcome = spec_convert(*command, *out, place / "draft", "--target", place / "target", "--format", "json")
    assert (outcome.status, outcome.json["error"]["hint"]) == (3, "rename it")


@pytest.mark.engine
@pytest.mark.slow
def test_probe_of_such_a_draft_says_its_name(place: Path) -> None:
    outcome = spec_convert("probe", place / "draft", "--target", TARGET, "--out", place / "probe.json")
    assert outcome.status == 0, outcome.stderr
    assert f"{SPELLED_OUT}/draft" in outcome.stdout
    assert f"{SPELLED_OUT}/draft" in json.loads((place / "probe.json").read_bytes())["checkpoint"]["reference"]


def test_probe_looks_for_the_place_of_its_result_before_it_runs(tmp_path: Path) -> None:
    for out, status in ((tmp_path / "none" / "result.json", 3), (tmp_path, 3), (FULL / "result.json", 2)):
        assert spec_convert("probe", FULL, "--target", TARGET, "--out", out).status == status
