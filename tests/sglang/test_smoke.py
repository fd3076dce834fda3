"""The whole `smoke --engine sglang` against real servers on the CPU: it passes, it sees a wrong reading, and it ends what it started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sglang_harness.environment import PYTHON, ROOT, TRAINED, Site
from sglang_harness.processes import heeding_hangups, left, processes
from sglang_harness.server import free_port

PROMPTS = 6
TOGETHER = 4
TARGET = TRAINED / "tiny-target"
DRAFT = TRAINED / "tiny-sliding-noncausal"
"""Bonus anchor, and sliding layers with a window that each prompt passes."""
EXPECTED = "2.43"
FAULTY = "speculators_dspark,cpu_stand_in,faulty_server"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first prompts of the fixtures, with their recorded continuations."""
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    file.write_text("".join((TRAINED / "prompts.jsonl").read_text().splitlines(keepends=True)[:PROMPTS]))
    return file


def words(draft: Path, prompts: Path, *more: str) -> list[str]:
    """The command as a user types it on a machine without a GPU."""
    common = ["--engine", "sglang", "--device", "cpu", "--prompts", str(prompts), "--concurrency", str(TOGETHER), "--timeout", "400"]
    return [str(PYTHON), "-m", "speculators_convert", "smoke", str(draft), "--target", str(TARGET), *common, *more]


def run(site: Site, command: list[str], *, tp: int = 1, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=site.environ(tp=tp, **environ), capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def passed(site: Site, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run with all claims; its folder."""
    out = tmp_path_factory.mktemp("run") / "out"
    done = run(site, words(DRAFT, prompts, "--expect", EXPECTED, "--out", str(out), "--report", str(out.parent / "page.html")), OWN="passed")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


def result(out: Path) -> dict:
    return json.loads((out / "smoke-result.json").read_text())


def claims(out: Path) -> dict[str, dict]:
    return {item["name"]: item for item in result(out)["comparisons"]}


def test_all_claims_hold(passed: Path) -> None:
    found = claims(passed)
    assert result(passed)["verdict"] == "pass"
    assert all(item["holds"] for item in found.values())
    for name in (
        "eager tp 1: drafted greedy equals target-only greedy",
        f"eager tp 1, {TOGETHER} at once: drafted greedy equals target-only greedy",
        "eager tp 1: drafted greedy equals the null draft's",
        f"eager tp 1, {TOGETHER} at once: drafted greedy equals the null draft's",
        "eager tp 1: the null draft proposes and is never accepted",
        "eager tp 1: acceptance length is the reference engine's",
        "eager tp 1: acceptance by position is the reference engine's",
        f"eager tp 1, {TOGETHER} at once: sampled tokens follow the target's distribution",
        "drafted-eager-tp1: the same tokens after /flush_cache",
        "drafted-eager-tp1: a running request can be aborted",
        "drafted-eager-tp1: the same tokens after an aborted request",
        "anchor: no other layout drafts better than the file's",
        "target-only greedy equals the prompt file's continuations",
        "eager tp 1: some context goes past the sliding window",
        "eager tp 1: acceptance length is the expected one",
    ):
        assert name in found


def test_result_is_evidence_with_its_surroundings(passed: Path) -> None:
    from speculators_convert.results.smoke import SmokeResult  # noqa: PLC0415

    found = SmokeResult.model_validate(result(passed))
    assert found.engine == "sglang"
    assert found.environment["sglang"] == "0.5.23"
    assert [server.role for server in found.servers] == ["drafted", "plain", "null draft"]
    assert all((passed / server.log).is_file() and "--attention-backend" in server.command for server in found.servers)
    assert all(server.environment["SGLANG_PLUGINS"] for server in found.servers)
    greedy = next(mode for mode in found.modes if mode.concurrency == 1 and not mode.temperature)
    assert greedy.exact == greedy.total == PROMPTS
    assert 2.2 < greedy.acceptance_length < 3.2
    assert (passed.parent / "page.html").read_text().count("null draft") > 1


@pytest.mark.parametrize(("engine", "status"), [("sglang", 0), ("reference", 1)])
def test_gate_takes_it_as_evidence_of_its_engine(passed: Path, tmp_path: Path, engine: str, status: int) -> None:
    policy = json.loads((ROOT / "src/speculators_convert/policies/default.json").read_text())
    policy["evidence"] |= {"required": True, "engines": [engine], "min_prompts": 1}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    words = [
        "gate",
        str(DRAFT),
        "--target",
        str(TARGET),
        "--evidence",
        str(passed / "smoke-result.json"),
        "--policy",
        str(tmp_path / "policy.json"),
    ]
    done = subprocess.run([sys.executable, "-m", "speculators_convert", *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("no evidence of reference" in done.stdout) is (status == 1)


def test_second_run_goes_on_where_the_first_stopped(site: Site, prompts: Path, passed: Path, tmp_path: Path) -> None:
    """One server's rows are gone: only that server starts again."""
    out = tmp_path / "again"
    shutil.copytree(passed, out)
    (out / "rows/plain-eager-tp1.json").unlink()
    before = {file.name: file.stat().st_mtime_ns for file in (out / "rows").iterdir()}
    done = run(site, words(DRAFT, prompts, "--expect", EXPECTED, "--out", str(out)))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert {file.name: file.stat().st_mtime_ns for file in (out / "rows").iterdir() if file.name in before} == before
    assert [item["holds"] for item in result(out)["comparisons"]] == [item["holds"] for item in result(passed)["comparisons"]]


def test_rows_of_another_draft_are_not_taken(site: Site, prompts: Path, passed: Path, tmp_path: Path) -> None:
    """The same folder with other bytes: all is asked again, and a draft read with the wrong anchor fails though it passes the floor."""
    draft, out = tmp_path / "draft", tmp_path / "out"
    shutil.copytree(TRAINED / "tiny-anchor-full-vanilla", draft)
    config = json.loads((draft / "config.json").read_text())
    assert config["sample_from_anchor"] is True
    config |= {"sample_from_anchor": False, "block_size": 7}
    (draft / "config.json").write_text(json.dumps(config))
    shutil.copytree(passed, out)
    done = run(site, words(draft, prompts, "--no-control", "--out", str(out)))
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    found = claims(out)
    assert found["eager tp 1: acceptance length reaches the floor"]["holds"]
    assert not found["anchor: no other layout drafts better than the file's"]["holds"]
    assert "contradicts the file" in found["anchor: no other layout drafts better than the file's"]["measured"]


@pytest.mark.parametrize(
    ("fault", "stage", "reason"),
    [
        ("die-at-start", "starting its processes", "Rank 0 scheduler died during initialization (exit code: 3)"),
        ("die-when-asked", "answering greedy requests", "crashed with exit code 3"),
        ("hang-when-asked", "answering greedy requests", "no last answer after 100 s (--timeout); give it more time"),
    ],
)
def test_a_server_that_fails_is_a_failed_claim(site: Site, prompts: Path, tmp_path: Path, fault: str, stage: str, reason: str) -> None:
    out, own = tmp_path / "out", f"fault-{fault}"
    command = words(TRAINED / "tiny-anchor-full-vanilla", prompts, "--no-control", "--parallel", "1", "--out", str(out))
    command[command.index("--timeout") + 1] = "100" if fault.startswith("hang") else "400"
    done = run(site, command, plugins=FAULTY, FAULTY_SERVER=fault, OWN=own)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    claim = claims(out)["drafted-eager-tp1: loads and answers"]
    assert not claim["holds"]
    assert stage in claim["measured"]
    assert reason in claim["measured"]
    assert "plain-eager-tp1: loads and answers" not in claims(out), "no further server after a drafted one failed"
    assert str(out / "logs/drafted-eager-tp1.log") in claim["measured"]
    assert processes(f"OWN={own}") == []


def test_a_bad_word_is_read_from_the_log(site: Site, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(site, words(TRAINED / "tiny-anchor-full-vanilla", prompts, "--no-control", "--parallel", "1", "--server-arg=--no-such-flag", "--out", str(out)))
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-flag" in claims(out)["drafted-eager-tp1: loads and answers"]["measured"]


def test_a_back_end_that_cannot_serve_is_refused_without_a_server(site: Site, tmp_path: Path) -> None:
    """The pair of the package has heads of 32."""
    named = ["--draft-attention-backend", "flashinfer", "--out", str(tmp_path / "out")]
    done = run(site, [str(PYTHON), "-m", "speculators_convert", "smoke", "--engine", "sglang", "--device", "cpu", *named])
    assert done.returncode == 2, done.stderr[-3000:]
    for said in ("--draft-attention-backend", "cannot serve the draft", "flashinfer on cpu with heads of 32", "torch_native"):
        assert said in done.stderr
    assert not (tmp_path / "out" / "logs").exists()


def test_a_question_about_an_image(site: Site, tmp_path: Path) -> None:
    """A target that sees images, over its own tokenizer. The reference engine has no such target, and the result says so."""
    multimodal, image = ROOT / "fixtures/multimodal", tmp_path / "red.png"
    image.write_bytes(png(64))
    command = words(multimodal / "vl-draft", tmp_path, "--no-control", "--image", str(image), "--max-new-tokens", "24", "--out", str(tmp_path / "out"))
    command[command.index("--target") + 1] = str(multimodal / "vl-target")
    del command[command.index("--prompts") : command.index("--prompts") + 2]
    done = run(site, command)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert claims(tmp_path / "out")["drafted-eager-tp1: a question about an image is answered"]["holds"]
    assert "cannot load the target" in result(tmp_path / "out")["environment"]["reference engine"]


def png(size: int) -> bytes:
    """A red square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\xff\0\0" * size) * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_two_machines_serve_together(site: Site, prompts: Path, tmp_path: Path) -> None:
    """Two commands on one machine stand for two machines, one rank each."""
    draft, address = TRAINED / "tiny-bonus-reduced-vanilla", f"127.0.0.1:{free_port()}"
    common = words(draft, prompts, "--no-control", "--tp", "2", "--nnodes", "2", "--dist-init-addr", address)
    environ = site.environ(tp=2, GLOO_SOCKET_IFNAME="lo", OWN="machines")
    with (tmp_path / "follower.txt").open("wb") as log:
        follower = subprocess.Popen([*common, "--node-rank", "1", "--out", str(tmp_path / "1")], env=environ, stdout=log, stderr=subprocess.STDOUT)
        leader = subprocess.run([*common, "--out", str(tmp_path / "0")], env=environ, capture_output=True, text=True, timeout=900, check=False)
        assert leader.returncode == 0, leader.stdout[-3000:] + leader.stderr[-3000:]
        assert follower.wait(60) == 0, (tmp_path / "follower.txt").read_text()[-3000:]
    assert claims(tmp_path / "0")["eager tp 1: tokens equal those of eager tp 2"]["holds"]
    assert claims(tmp_path / "1")["machine 1: served with machine 0, which asks and judges"]["measured"] == "drafted-eager-tp2, plain-eager-tp2"
    assert processes("OWN=machines") == []


def serving(own: str, out: Path) -> bool:
    """Schedulers live, in processes of their own."""
    return bool(processes(f"OWN={own}", "sglang::scheduler"))


def answering(own: str, out: Path) -> bool:
    """A server answers requests; none has answered all."""
    return any("POST /generate" in log.read_text(errors="replace") for log in (out / "logs").glob("*.log"))


def half_done(own: str, out: Path) -> bool:
    """One server has answered all, and another runs."""
    return any((out / "rows").glob("*.json")) and serving(own, out)


@contextmanager
def started(site: Site, prompts: Path, out: Path, own: str, there: Callable[[str, Path], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """The command, once it is `there`."""
    command = words(TRAINED / "tiny-anchor-full-vanilla", prompts, "--no-control", "--parallel", "1", "--out", str(out))
    with heeding_hangups(), subprocess.Popen(command, env=site.environ(OWN=own), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 300
            while not there(own, out):
                assert process.poll() is None
                assert time.monotonic() < deadline, f"{there.__doc__} Not after 300 s: {[file.name for file in out.rglob('*')]}"
                time.sleep(0.2)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "there"), [(signal.SIGINT, serving), (signal.SIGHUP, serving), (signal.SIGKILL, answering)])
def test_each_signal_leaves_no_process(number: signal.Signals, there: Callable[[str, Path], bool], site: Site, prompts: Path, tmp_path: Path) -> None:
    own = f"signal-{number.name}-{os.getpid()}"
    with started(site, prompts, tmp_path / "out", own, there) as process:
        process.send_signal(number)
        assert process.wait(60) == (-9 if number == signal.SIGKILL else 128 + number)
        assert left(f"OWN={own}") == []


def test_a_run_that_was_ended_goes_on_at_the_server_that_had_not_finished(site: Site, prompts: Path, tmp_path: Path) -> None:
    out, own = tmp_path / "out", f"signal-resumed-{os.getpid()}"
    with started(site, prompts, out, own, half_done) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert left(f"OWN={own}") == []
    before = {file.name: file.stat().st_mtime_ns for file in (out / "rows").glob("*.json")}
    assert len(before) == 1
    done = run(site, words(TRAINED / "tiny-anchor-full-vanilla", prompts, "--no-control", "--parallel", "1", "--out", str(out)))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    after = {file.name: file.stat().st_mtime_ns for file in (out / "rows").glob("*.json")}
    assert len(after) == 2
    assert {name: after[name] for name in before} == before


def test_two_ranks_on_one_machine_pass_with_the_control(site: Site, prompts: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(prompts.read_text().splitlines(keepends=True)[:2]))
    command = words(TRAINED / "tiny-anchor-reduced-gated", few, "--tp", "2", "--max-new-tokens", "16", "--parallel", "1", "--out", str(tmp_path / "out"))
    done = run(site, command, tp=2)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = claims(tmp_path / "out")
    assert all(item["holds"] for item in found.values())
    assert found["eager tp 1: tokens equal those of eager tp 2"]["measured"].startswith("2 of 2 prompts equal")
    assert found["eager tp 2: drafted greedy equals the null draft's"]["measured"] == "2 of 2 prompts equal"
    assert [server["name"] for server in result(tmp_path / "out")["servers"]] == ["drafted-eager-tp2", "drafted-eager-tp1", "plain-eager-tp2", "null-draft-eager-tp2"]
