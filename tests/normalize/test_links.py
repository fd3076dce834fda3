"""`--link`: what equals a whole source file shares its data where the disk allows it; all else is copied as without the flag."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from normalizing import Written, normalize_draft, plan_draft, read_draft, synthetic_draft
from typer.testing import CliRunner

from speculators_convert.cli import build
from speculators_convert.errors import SourceError
from speculators_convert.layouts import parts
from speculators_convert.rewrite.receipt import RECEIPT_NAME, verify
from speculators_convert.sources import MemorySource
from speculators_convert.write import links
from speculators_convert.write.execution import execute

SIDE_FILES = ("LICENSE", "README.md", "tokenizer.json")


def canonical(out: Path) -> Path:
    return normalize_draft(MemorySource(synthetic_draft()), out).folder


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_SHARD_BYTES", 400)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts on request; taken down at the end."""
    made: list[Path] = []

    def mount(*arguments: str) -> Path:
        folder = tmp_path / f"disk{len(made)}"
        folder.mkdir()
        result = subprocess.run(["mount", *arguments, str(folder)], check=False, capture_output=True)
        if result.returncode:
            pytest.skip(f"cannot mount here: {result.stderr.decode().strip()}")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", str(folder)], check=True)


def refuse_reflink(_whole: links.Whole, _to: Path) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def wrong(whole: links.Whole, path: Path) -> links.Whole:
    """The same claim about another file."""
    found = path.stat()
    return replace(whole, path=path, identity=(found.st_dev, found.st_ino))


def same_inode(left: Path, right: Path) -> bool:
    return left.samefile(right)


def assert_same_as_copied(source: Path, linked: Written, out: Path) -> None:
    """But for its notes, the linked output is the one without the flag, and true to its receipt."""
    copied = normalize_draft(source, out)
    names = {path.name for path in linked.folder.iterdir()}
    assert names == {path.name for path in copied.folder.iterdir()}
    for name in names - {RECEIPT_NAME}:
        assert (linked.folder / name).read_bytes() == (copied.folder / name).read_bytes()
    assert linked.receipt.subject == copied.receipt.subject
    assert linked.receipt.predicate.model_copy(update={"notes": ()}) == copied.receipt.predicate.model_copy(update={"notes": ()})
    assert verify(linked.folder) == ()


def check_hard_links(shelf: Path) -> None:
    source = canonical(shelf / "source")
    linked = normalize_draft(source, shelf / "out", link=True)
    for name in ("model.safetensors", *SIDE_FILES):
        assert same_inode(source / name, linked.folder / name), name
    assert not same_inode(source / "config.json", linked.folder / "config.json")
    [note] = linked.receipt.predicate.notes
    assert note.startswith("linked, not copied (hard link): LICENSE, README.md, model.safetensors, tokenizer.json")
    assert "changes both" in note
    assert_same_as_copied(source, linked, shelf / "copied")


def test_a_canonical_draft_on_tmpfs_is_hard_linked(mounted: Callable[..., Path]) -> None:
    check_hard_links(mounted("-t", "tmpfs", "tmpfs"))


def test_a_disk_without_reflinks_gets_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On whatever disk the tests run; the ioctl itself is taken away where that disk would serve it."""
    monkeypatch.setattr(links, "_reflink", refuse_reflink)
    check_hard_links(tmp_path)


def test_xfs_gives_reflinks_that_stay_apart(tmp_path: Path, mounted: Callable[..., Path]) -> None:
    if shutil.which("mkfs.xfs") is None:
        pytest.skip("mkfs.xfs is not installed")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True, capture_output=True)
    shelf = mounted("-o", "loop", str(image))
    source = canonical(shelf / "source")
    linked = normalize_draft(source, shelf / "out", link=True)
    [note] = linked.receipt.predicate.notes
    assert note.startswith("linked, not copied (reflink): LICENSE, README.md, model.safetensors, tokenizer.json")
    assert not same_inode(source / "model.safetensors", linked.folder / "model.safetensors")
    assert_same_as_copied(source, linked, shelf / "copied")
    with (source / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
        file.seek(0)
        file.write(b"\xff")
    assert verify(linked.folder) == ()


def test_another_disk_gets_copies_and_the_reason(tmp_path: Path, mounted: Callable[..., Path]) -> None:
    source = canonical(tmp_path / "source")
    shelf = mounted("-t", "tmpfs", "tmpfs")
    linked = normalize_draft(source, shelf / "out", link=True)
    assert (linked.folder / "model.safetensors").stat().st_nlink == 1
    assert [note for note in linked.receipt.predicate.notes if "model.safetensors" in note] == [
        f"copied, because it could not be linked ({os.strerror(errno.EXDEV)}): model.safetensors"
    ]
    assert_same_as_copied(source, linked, shelf / "copied")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK])
def test_a_link_that_is_refused_becomes_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Each error as the kernel gives it; few disks can be brought to give them all."""
    source = canonical(tmp_path / "source")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(links, "_reflink", refuse)
    monkeypatch.setattr(links.os, "link", refuse)
    linked = normalize_draft(source, tmp_path / "out", link=True)
    assert f"copied, because it could not be linked ({os.strerror(code)}): model.safetensors" in linked.receipt.predicate.notes
    monkeypatch.undo()
    assert_same_as_copied(source, linked, tmp_path / "copied")


@pytest.mark.usefixtures("shards")
def test_only_a_shard_that_is_not_canonical_is_copied(tmp_path: Path) -> None:
    """One shard has other header metadata; its tensors are the same."""
    source = canonical(tmp_path / "source")
    names = sorted(path.name for path in source.glob("*.safetensors"))
    assert len(names) > 3
    changed = source / names[1]
    changed.write_bytes(changed.read_bytes().replace(b'"pt"', b'"np"', 1))
    linked = normalize_draft(source, tmp_path / "out", link=True)
    linked_names = linked.receipt.predicate.notes[0].split("; ")[0]
    assert [name for name in names if name not in linked_names] == [changed.name]
    assert not same_inode(changed, linked.folder / changed.name)
    assert_same_as_copied(source, linked, tmp_path / "copied")


def test_tensors_in_another_order_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, data in synthetic_draft().items():
        (source / name).write_bytes(data)
    linked = normalize_draft(source, tmp_path / "out", link=True)
    [note] = linked.receipt.predicate.notes
    assert "model.safetensors" not in note
    assert "README.md" in note
    assert_same_as_copied(source, linked, tmp_path / "copied")


def test_a_source_that_is_no_folder_is_copied(tmp_path: Path) -> None:
    linked = normalize_draft(MemorySource(synthetic_draft()), tmp_path / "out", link=True)
    [note] = linked.receipt.predicate.notes
    assert note.startswith("nothing was linked")


def test_the_blob_behind_a_symlink_is_linked_not_the_symlink(tmp_path: Path) -> None:
    """A hub cache: names in a snapshot point to blobs."""
    plain = canonical(tmp_path / "plain")
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "c0ffee", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(plain.iterdir())):
        (blobs / str(number)).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    linked = normalize_draft(snapshot, tmp_path / "out", link=True)
    found = linked.folder / "model.safetensors"
    assert found.is_file()
    assert not found.is_symlink()
    assert "model.safetensors" in linked.receipt.predicate.notes[0]
    assert_same_as_copied(snapshot, linked, tmp_path / "copied")


@pytest.mark.parametrize("change", ["head", "size"])
def test_a_wrong_link_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    source = canonical(tmp_path / "source")
    data = (source / "model.safetensors").read_bytes()
    (tmp_path / "other").write_bytes(data[:-1] if change == "size" else data.replace(b'"pt"', b'"np"', 1))
    real = links.make_link
    monkeypatch.setattr(links, "make_link", lambda whole, to: real(wrong(whole, tmp_path / "other") if to.name == "model.safetensors" else whole, to))
    with pytest.raises(SourceError, match="changed while it was linked"):
        normalize_draft(source, tmp_path / "out", link=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "source"]
    assert verify(source) == ()


def test_another_file_under_the_name_is_not_linked(tmp_path: Path) -> None:
    """Same size, same header, other data: put there after the look."""
    (tmp_path / "file").write_bytes(b"head and data")
    whole = links.Whole(tmp_path / "file", b"head", 13, (0, 0))
    with pytest.raises(SourceError, match="another file"):
        links.make_link(whole, tmp_path / "out")


def test_a_hard_link_to_another_file_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = canonical(tmp_path / "source")
    data = (source / "model.safetensors").read_bytes()
    (tmp_path / "other").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    real = os.link
    monkeypatch.setattr(links, "_reflink", refuse_reflink)
    monkeypatch.setattr(links.os, "link", lambda _path, to, **_options: real(tmp_path / "other", to))
    with pytest.raises(SourceError, match="another file"):
        normalize_draft(source, tmp_path / "out", link=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "source"]


def test_a_source_changed_while_its_link_is_read_is_noticed(tmp_path: Path) -> None:
    """A hard link shows the change at once; the source's time gives it away."""
    source = canonical(tmp_path / "source")
    read = read_draft(source)

    def change(_done: int, _total: int) -> None:
        with (source / "model.safetensors").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
        os.utime(source / "model.safetensors", ns=(1, 1))

    with pytest.raises(SourceError, match="changed while it was read"):
        execute(plan_draft(read, "speculators"), read.source, tmp_path / "out", link=True, progress=change)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_failed_run_takes_its_links_away_and_leaves_the_source_whole(tmp_path: Path) -> None:
    source = canonical(tmp_path / "source")
    debris = tmp_path / ".out.spec-convert-1-abcd"
    debris.mkdir()
    os.link(source / "model.safetensors", debris / "model.safetensors")
    read = read_draft(source)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan_draft(read, "speculators"), read.source, tmp_path / "out", link=True, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert verify(source) == ()
    assert (source / "model.safetensors").stat().st_nlink == 1


def test_links_need_no_space(mounted: Callable[..., Path]) -> None:
    """A disk with room for one draft takes a second one."""
    shelf = mounted("-t", "tmpfs", "-o", "size=6m", "tmpfs")
    source = normalize_draft(MemorySource(synthetic_draft(vocabulary=4000, rank=300)), shelf / "source").folder
    assert (source / "model.safetensors").stat().st_size > 3_500_000
    assert verify(normalize_draft(source, shelf / "out", link=True).folder) == ()


def test_the_flag_at_the_command_line(tmp_path: Path) -> None:
    source = canonical(tmp_path / "source")
    result = CliRunner().invoke(build(), ["normalize", str(source), "--out", str(tmp_path / "out"), "--link"])
    assert result.exit_code == 0, result.output
    assert "linked, not copied" in result.output
    assert verify(tmp_path / "out") == ()
