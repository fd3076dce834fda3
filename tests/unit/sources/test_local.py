"""A folder on disk: what is listed, what is read, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speculators_convert.checkpoint import collect
from speculators_convert.errors import SourceError, UsageError
from speculators_convert.sources import LocalSource, MemorySource, open_source, safe_path


def test_files_are_sorted_with_sizes_and_posix_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"123")
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_bytes(b"x")
    assert [(info.path, info.size_bytes, info.refused) for info in LocalSource(tmp_path).files()] == [("a", 0, None), ("sub/b", 3, None)]


def test_ranges(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    source = LocalSource(tmp_path)
    assert source.read("a", 2, 5) == b"234"
    assert source.read("a", 4, 4) == b""
    with pytest.raises(SourceError, match="shorter than expected; measured ends at byte 10; expected 11 bytes"):
        source.read("a", 2, 11)


def test_a_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read the file") as caught:
        LocalSource(tmp_path).read("config.json", 0, 1)
    assert caught.value.where == str(tmp_path / "config.json")


def test_links_out_are_listed_but_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").symlink_to(tmp_path / "secret")
    (tmp_path / "draft" / "gone").symlink_to("nowhere")
    (tmp_path / "draft" / "loop").symlink_to("loop")
    source = LocalSource(tmp_path / "draft")
    assert [(info.path, info.refused is None) for info in source.files()] == [("config.json", False), ("gone", False), ("loop", False)]
    with pytest.raises(SourceError, match="a link leaves the checkpoint folder"):
        source.read("config.json", 0, 1)
    assert [fault.kind for fault in collect(source).faults][:3] == ["refused-file"] * 3


def test_a_folder_link_out_is_not_walked(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"x")
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "sub").symlink_to(tmp_path / "other")
    source = LocalSource(tmp_path / "draft")
    assert source.files() == ()
    with pytest.raises(SourceError, match="a link leaves"):
        source.read("sub/x", 0, 1)


def test_a_hub_cache_reads_its_own_blobs_and_nothing_else(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "1").write_bytes(b"{}")
    (tmp_path / "models--a--b" / "refs").write_bytes(b"out")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "x").symlink_to("../../refs")
    source = LocalSource(snapshot)
    assert source.read("config.json", 0, 2) == b"{}"
    assert [(info.path, info.size_bytes, info.refused) for info in source.files()] == [("config.json", 2, None), ("x", 0, "a link that leaves the folder")]


@pytest.mark.parametrize("name", [b"a\xff.safetensors", b"a\nb.safetensors", b"a\\b.safetensors", b"a\x1b[31m.safetensors"])
def test_names_that_are_not_plain_are_refused_without_an_exception(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    (info,) = LocalSource(tmp_path).files()
    assert info.refused == "its name is not a plain UTF-8 path"
    assert info.path.encode()
    assert collect(LocalSource(tmp_path)).faults[0].kind == "refused-file"


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert LocalSource(tmp_path).files() == ()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\\b", "a\nb", "a\x00b"])
def test_unsafe_paths(path: str) -> None:
    with pytest.raises(SourceError, match="leaves the checkpoint"):
        safe_path(path)
    with pytest.raises(SourceError):
        MemorySource({path: b""})


def test_memory() -> None:
    source = MemorySource({"b": b"123", "a": b""})
    assert [info.path for info in source.files()] == ["a", "b"]
    assert source.read("b", 1, 3) == b"23"
    with pytest.raises(SourceError):
        source.read("b", 1, 4)
    with pytest.raises(SourceError):
        source.read("c", 0, 0)


def test_open_source(tmp_path: Path) -> None:
    assert isinstance(open_source(str(tmp_path)), LocalSource)
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(UsageError, match="a checkpoint is a folder"):
        open_source(str(tmp_path / "x"))
    with pytest.raises(SourceError, match="no such folder"):
        open_source(str(tmp_path / "absent"))
