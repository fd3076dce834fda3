"""What cannot be written is refused or stopped with a clear error, and nothing stands under the final name."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from normalizing import normalize_draft, plan_draft, read_draft, synthetic_draft

from speculators_convert.errors import SourceError, UsageError, WriteError
from speculators_convert.sources import FileInfo, MemorySource, SourceId, open_source
from speculators_convert.write import execution
from speculators_convert.write.claim import claimed
from speculators_convert.write.execution import execute

NOBODY = 65534


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, data in synthetic_draft().items():
        (folder / name).write_bytes(data)
    return folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_existing_output_is_refused_and_kept(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("kept")
    with pytest.raises(UsageError, match="already exists"):
        normalize_draft(source, out)
    assert (out / "mine").read_text() == "kept"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_a_dangling_link_counts_as_existing(source: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="already exists"):
        normalize_draft(source, out)


@pytest.mark.parametrize("out", ["source/out", "source/deep/out", "link/out"])
def test_an_output_inside_the_source_is_refused(source: Path, tmp_path: Path, out: str) -> None:
    (source / "deep").mkdir()
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(UsageError, match="inside the source"):
        normalize_draft(source, tmp_path / out)
    assert not (source / "out").exists()


def test_a_missing_parent_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist") as error:
        normalize_draft(source, tmp_path / "no" / "such" / "out")
    assert error.value.where == str(tmp_path / "no" / "such")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_too_little_space_is_seen_before_anything_is_written(small_disk: Path) -> None:
    big = synthetic_draft(vocabulary=4000, rank=200)
    with pytest.raises(WriteError, match="not enough free space") as error:
        normalize_draft(MemorySource(big), small_disk / "out")
    assert "free" in str(error.value.measured)
    assert left_in(small_disk) == []


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_refuse_full", lambda folder, plan: None)
    big = synthetic_draft(vocabulary=4000, rank=200)
    with pytest.raises(WriteError, match="No space left"):
        normalize_draft(MemorySource(big), small_disk / "out", chunk_bytes=100_000)
    assert left_in(small_disk) == []


def test_a_disk_that_is_mounted_read_only_is_a_clear_error(small_disk: Path, source: Path) -> None:
    remounted = subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=False, capture_output=True)
    if remounted.returncode:
        pytest.skip(f"cannot mount read-only here: {remounted.stderr.decode().strip()}")
    for link in (False, True):
        with pytest.raises(WriteError, match="Read-only file system") as error:
            normalize_draft(source, small_disk / "out", link=link)
        assert "can be written" in error.value.hint
    assert left_in(small_disk) == []


def test_permission_denied_is_a_clear_error(source: Path) -> None:
    """In a process that is not root, because root may write anywhere."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    shelf = Path(tempfile.mkdtemp())
    shelf.chmod(0o755)
    read = read_draft(MemorySource({path.name: path.read_bytes() for path in source.iterdir()}))
    plan = plan_draft(read, "speculators")
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            os.setuid(NOBODY)
            execute(plan, read.source, shelf / "out")
        except WriteError as error:
            outcome = 0 if "Permission denied" in str(error) and "may write" in error.hint else 2
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert left_in(shelf) == []
    shelf.rmdir()


class Changing:
    """A source that behaves until its weights have been read."""

    def __init__(self, files: dict[str, bytes], fault: str) -> None:
        self._inner, self._fault, self._reads = MemorySource(files), fault, 0
        self.id = SourceId("memory", "changing")

    def files(self) -> tuple[FileInfo, ...]:
        files = self._inner.files()
        if self._fault == "grown" and self._reads > 20:
            return tuple(FileInfo(info.path, info.size_bytes + (info.path == "README.md")) for info in files)
        return files

    def read(self, path: str, start: int, stop: int) -> bytes:
        self._reads += 1
        data = self._inner.read(path, start, stop)
        return data[:-1] if self._fault == "short" and path == "model.safetensors" and self._reads > 5 and data else data


@pytest.mark.parametrize(("fault", "message"), [("grown", "changed while it was read"), ("short", "another number of bytes")])
def test_a_source_that_changes_is_noticed(tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        normalize_draft(Changing(synthetic_draft(), fault), tmp_path / "out")
    assert left_in(tmp_path) == []


def test_a_file_rewritten_during_the_copy_is_noticed(source: Path, tmp_path: Path) -> None:
    read = read_draft(source)
    plan = plan_draft(read, "speculators")

    def touch(_done: int, _total: int) -> None:
        os.utime(source / "model.safetensors", ns=(1, 1))

    with pytest.raises(SourceError, match="changed while it was read"):
        execute(plan, read.source, tmp_path / "out", progress=touch)
    assert left_in(tmp_path) == ["source"]


def test_a_plan_for_other_files_is_refused(source: Path, tmp_path: Path) -> None:
    plan = plan_draft(read_draft(source), "speculators")
    (source / "README.md").write_text("longer than before, so the plan is out of date")
    with pytest.raises(SourceError, match="not what the plan was made from"):
        execute(plan, open_source(str(source)), tmp_path / "out")
    assert left_in(tmp_path) == ["source"]


def test_a_second_run_to_the_same_output_is_refused(source: Path, tmp_path: Path) -> None:
    with claimed(tmp_path / "out"), pytest.raises(WriteError, match="another run"):
        normalize_draft(source, tmp_path / "out")
    assert left_in(tmp_path / "out") == []


def test_debris_of_a_dead_run_is_removed_and_that_of_others_kept(source: Path, tmp_path: Path) -> None:
    dead, other = tmp_path / ".out.spec-convert-1-abcd", tmp_path / ".outer.spec-convert-1-abcd"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
    normalize_draft(source, tmp_path / "out")
    assert left_in(tmp_path) == [other.name, "out", "source"]


def test_an_interrupt_leaves_nothing(source: Path, tmp_path: Path) -> None:
    read = read_draft(source)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan_draft(read, "speculators"), read.source, tmp_path / "out", progress=stop)
    assert left_in(tmp_path) == ["source"]


def test_two_processes_started_together_make_one_output(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from normalizing import normalize_draft; "
        "normalize_draft(Path(sys.argv[2]), Path(sys.argv[3]), chunk_bytes=16)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(source), str(tmp_path / "out")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outcomes = [(child.communicate()[1], child.returncode) for child in children]
    assert sorted(code for _, code in outcomes) == [0, 1], outcomes
    message = next(text for text, code in outcomes if code).strip().splitlines()[-1]
    assert "another run" in message or "already exists" in message
    assert left_in(tmp_path) == ["out", "source"]
