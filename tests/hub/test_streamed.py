"""One long pass over a far source: same bytes, each fetched once, bounded memory, digest checked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hub_files import DRAFT
from hypothesis import given
from hypothesis import strategies as st
from local_hub import Body, Fault, LocalHub

from speculators_convert.errors import SourceError
from speculators_convert.sources import FileInfo, MemorySource, SourceId, StreamedSource, open_source, streamed
from speculators_convert.sources.hub import open_hub, parse_reference
from speculators_convert.sources.streamed import LARGEST_WINDOW_BYTES

SIZE = 3_000_000
CONTENT = hashlib.shake_128(b"content").digest(SIZE)


class Published(MemorySource):
    """Files in memory with published digests; counts what is read."""

    def __init__(self, files: dict[str, bytes], digests: dict[str, str | None]) -> None:
        super().__init__(files)
        self.digests, self.taken = digests, list[tuple[str, int, int]]()

    @property
    def id(self) -> SourceId:
        return SourceId("hub", "org/name", "c" * 40)

    def files(self) -> tuple[FileInfo, ...]:
        return tuple(FileInfo(info.path, info.size_bytes, self.digests.get(info.path)) for info in super().files())

    def read(self, path: str, start: int, stop: int) -> bytes:
        self.taken.append((path, start, stop))
        return super().read(path, start, stop)


def published(digest: str | None = hashlib.sha256(CONTENT).hexdigest()) -> Published:
    return Published({"a": CONTENT, "b": b"small"}, {"a": digest})


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 400_000)), max_size=12), st.booleans())
def test_any_reads_in_any_order_give_the_bytes_and_the_digest(reads: list[tuple[int, int]], with_digest: bool) -> None:
    source = published() if with_digest else published(None)
    with StreamedSource(source) as stream:
        for start, length in reads:
            stop = min(start + length, SIZE)
            assert stream.read("a", start, stop) == CONTENT[start:stop]
        stream.verify()
    assert all(stop - start <= LARGEST_WINDOW_BYTES for _, start, stop in source.taken)


def test_pass_from_front_to_back_fetches_each_byte_once() -> None:
    source = published()
    with StreamedSource(source) as stream:
        for start in range(0, 1_000_000, 100_000):
            stream.read("a", start, start + 100_000)
        stream.read("a", 2_000_000, 2_500_000)
        stream.verify()
    ranges = sorted((start, stop) for _, start, stop in source.taken)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == SIZE


def test_other_content_is_refused() -> None:
    with StreamedSource(published("0" * 64)) as stream:
        stream.read("a", 0, 10)
        with pytest.raises(SourceError, match="the file is not the published one") as caught:
            stream.verify()
    assert caught.value.measured == f"SHA-256 {hashlib.sha256(CONTENT).hexdigest()}"
    assert caught.value.where == "org/name, a"


def test_file_that_was_not_read_is_not_judged() -> None:
    with StreamedSource(published("0" * 64)) as stream:
        assert stream.read("b", 0, 5) == b"small"
        stream.verify()


def test_read_past_the_end() -> None:
    with StreamedSource(published()) as stream, pytest.raises(SourceError, match="shorter than expected"):
        stream.read("a", 0, SIZE + 1)


def test_folder_is_not_wrapped(tmp_path: Path) -> None:
    source = open_source(str(DRAFT))
    with streamed(source) as same:
        assert same is source


def normalize(environment: dict[str, str], reference: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "speculators_convert", "normalize", reference, "--out", str(out), "--format", "json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_normalize_from_the_hub_equals_normalize_from_the_folder(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    far = normalize(environment(), "org/draft", tmp_path / "far")
    assert far.returncode == 0, far.stderr
    near = normalize(environment(), str(DRAFT), tmp_path / "near")
    assert near.returncode == 0, near.stderr
    assert (tmp_path / "far" / "model.safetensors").read_bytes() == (tmp_path / "near" / "model.safetensors").read_bytes()
    assert json.loads(far.stdout)["predicate"]["source"]["revision"] == hub.repositories["org/draft"].refs["main"]


def test_normalize_resumes_after_cut_bodies(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    hub.faults += [Fault("cdn", "cut", after_bytes=200_000, skip=4), Fault("cdn", "drop", skip=2), Fault("cdn", "status", status=503, headers={"Retry-After": "0"}, skip=1)]
    done = normalize(environment(), "org/draft", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    size = (DRAFT / "model.safetensors").stat().st_size
    assert not any(fault.times for fault in hub.faults)
    assert hub.sent_bytes < size + 400_000


def test_deep_inspection_refuses_content_that_is_not_the_published_one(hub: LocalHub, environment: Callable[..., dict[str, str]]) -> None:
    weights = (DRAFT / "model.safetensors").read_bytes()
    hub.add("org/changed", {"config.json": Body((DRAFT / "config.json").read_bytes()), "model.safetensors": Body(weights[:-1] + b"x", lfs=True, sha256="4" * 64)})
    command = [sys.executable, "-m", "speculators_convert", "inspect", "org/changed", "--format", "json"]
    assert subprocess.run(command, env=environment(), capture_output=True, check=False, timeout=60).returncode in {0, 1}
    deep = subprocess.run([*command, "--deep"], env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert (deep.returncode, json.loads(deep.stdout)["error"]["message"]) == (3, "the file is not the published one")


def test_target_on_the_hub_costs_few_requests(hub: LocalHub, environment: Callable[..., dict[str, str]]) -> None:
    hub.add("org/target", DRAFT.parent / "tiny-target")
    command = [sys.executable, "-m", "speculators_convert", "inspect", "org/draft", "--target", "org/target", "--format", "json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, 1}, done.stderr
    assert hub.requests < 60


def test_normalize_refuses_content_that_is_not_the_published_one(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    weights = (DRAFT / "model.safetensors").read_bytes()
    changed = weights[:-5000] + bytes([weights[-5000] ^ 1]) + weights[-4999:]
    hub.add("org/changed", {"config.json": Body((DRAFT / "config.json").read_bytes()), "model.safetensors": Body(changed, lfs=True, sha256=hashlib.sha256(weights).hexdigest())})
    done = normalize(environment(), "org/changed", tmp_path / "out")
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert error["message"] == "the file is not the published one"
    assert error["expected"] == hashlib.sha256(weights).hexdigest()
    assert list(tmp_path.glob("*out*")) == []


def test_memory_does_not_grow_with_the_file(hub: LocalHub) -> None:
    import tracemalloc  # noqa: PLC0415

    source = open_hub(parse_reference("org/large"), endpoint=hub.url)  # type: ignore[arg-type]
    size = next(info.size_bytes for info in source.files() if info.path == "model.safetensors")
    tracemalloc.start()
    with StreamedSource(source) as stream:
        for start in range(0, size, 1 << 20):
            stream.read("model.safetensors", start, start + (1 << 20))
        stream.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 64 << 20
    assert peak < 56 << 20


def test_killed_downloads_leave_nothing_under_the_name_and_the_next_run_succeeds(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    hub.bytes_per_s = 2e6
    out = tmp_path / "out"
    command = [sys.executable, "-m", "speculators_convert", "normalize", "org/draft", "--out", str(out)]
    random = Random(7)  # noqa: S311 (moments, not secrets)
    seen_debris = 0
    for _ in range(6):
        before = hub.requests
        child = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while hub.requests < before + 6 and child.poll() is None:  # it has begun to read
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.8))
        child.kill()
        finished = child.wait() == 0
        assert out.exists() == finished
        seen_debris += len(list(tmp_path.glob(".out*")))
        if finished:
            shutil.rmtree(out)
    hub.bytes_per_s = 0
    done = normalize(environment(), "org/draft", out)
    assert done.returncode == 0, done.stderr
    assert seen_debris
    assert list(tmp_path.glob(".out*")) == []


def test_terminal_shows_rate_and_time_left(hub: LocalHub, environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    hub.bytes_per_s = 1e6
    terminal, side = pty.openpty()
    command = [sys.executable, "-m", "speculators_convert", "inspect", "org/draft", "--deep", "--format", "json"]
    child = subprocess.Popen(command, env=environment(TERM="xterm", COLUMNS="120"), stdout=subprocess.DEVNULL, stderr=side)
    os.close(side)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the child ends
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert child.wait(60) in {0, 1}
    assert b"reading weights" in shown
    assert re.search(rb"[\d.]+ [kM]B/s", shown)
    assert re.search(rb"\d:\d\d:\d\d", shown)
