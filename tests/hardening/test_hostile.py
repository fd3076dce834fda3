"""Hostile checkpoints: bombs, paths, links, code and deceptive text. Each gives a finding, in little memory, and nothing is run or followed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from speculators_convert.api import inspect
from speculators_convert.checkpoint import collect
from speculators_convert.container.pickles import SNIFFED_BYTES, is_pickle
from speculators_convert.layouts.side_files import side_files
from speculators_convert.model import Severity
from speculators_convert.report.json_ import render
from speculators_convert.sources import LocalSource

MEMORY_BYTES = 200_000_000
"""Peak of a whole process; a clean draft takes about 55 MB."""


def header(folder: Path, text: bytes, tail: bytes = b"") -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + tail)


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


HEADERS = {
    "depth-objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper than 64 levels"),
    "depth-lists": (b'{"a":' + b"[" * 1_500_000, "nested deeper than 64 levels"),
    "count-of-tensors": (b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % number for number in range(300_000)) + b"}", "over the limit of 2000000"),
    "count-of-lists": (b'{"a":[' + b"[]," * 3_000_000 + b"[]]}", "over the limit of 2000000"),
    "dimensions": (b'{"a":{"dtype":"U8","shape":[' + b"1," * 500_000 + b'1],"data_offsets":[0,1]}}', None),
    "long-name": (b'{"' + b"a" * 5_000_000 + b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', None),
    "digits": (b'{"a":{"dtype":"U8","shape":[' + b"9" * 1_000_000 + b'],"data_offsets":[0,1]}}', None),
    "64-bit-shape": (b'{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,18446744073709551616]}}', None),
    "64-bit-product": (b'{"a":{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}', None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_header_bomb(run: Callable, draft: Path, name: str) -> None:
    text, measured = HEADERS[name]
    header(draft, text)
    done = run("inspect", draft, "--format", "json")
    assert done.status == 1
    if measured:
        assert measured in done.findings["DSP004"]["measured"]
    assert done.peak_bytes < MEMORY_BYTES
    assert len(done.out) < 200_000


@pytest.mark.parametrize("length", [1 << 62, (1 << 64) - 1, 100_000_001])
def test_header_length_is_not_allocated(run: Callable, draft: Path, length: int) -> None:
    (draft / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    done = run("inspect", draft, "--format", "json")
    assert (done.status, done.findings["DSP002"]["measured"]) == (1, f"{length} bytes")
    assert done.peak_bytes < MEMORY_BYTES


@pytest.mark.parametrize("text", ['{"a": ' + "[" * 100_000, '{"a": [' + "[]," * 3_000_000 + "[]]}", '{"block_size": ' + "9" * 1_000_000 + "}"])
def test_config_bomb(run: Callable, draft: Path, text: str) -> None:
    (draft / "config.json").write_text(text)
    done = run("inspect", draft, "--format", "json")
    assert (done.status, done.findings["DSP021"]["severity"]) == (1, "error")
    assert done.peak_bytes < MEMORY_BYTES


def test_index_that_names_a_million_tensors(run: Callable, draft: Path) -> None:
    (draft / "model.safetensors.index.json").write_text('{"weight_map":{' + ",".join(f'"{number}":"model.safetensors"' for number in range(400_000)) + "}}")
    done = run("inspect", draft, "--format", "json")
    assert done.status == 1
    assert done.findings["DSP037"]["message"] == "399900 more of the same"
    assert len(done.out) < 300_000


@pytest.mark.parametrize("key", ["block_size", "mask_token_id", "draft_vocab_size", "markov_rank"])
@pytest.mark.parametrize("number", [1 << 63, 1 << 64, -(1 << 63) - 1, 10**400, 1e300])
def test_number_beyond_64_bits(draft: Path, key: str, number: float) -> None:
    edit(draft, lambda config: config.update({key: number}))
    report = inspect(str(draft))
    assert any(item.severity is Severity.ERROR and key in item.subject + item.message + item.pointer for item in report.findings)
    json.loads(render(report))


def test_duplicate_keys_of_the_config(run: Callable, draft: Path) -> None:
    path = draft / "config.json"
    path.write_text(path.read_text().replace("{", '{"block_size": 3,', 1))
    assert "'block_size' stands twice" in run("inspect", draft, "--format", "json").findings["DSP021"]["measured"]


@pytest.mark.parametrize(
    "shard",
    [
        "../other/model.safetensors",
        "/etc/passwd",
        "a/../../other/model.safetensors",
        "..\\other\\model.safetensors",
        "model.safetensors\x00",
        "//etc/passwd",
        "~/model.safetensors",
    ],
)
def test_path_in_the_index_is_not_followed(run: Callable, draft: Path, shard: str) -> None:
    other = draft.parent / "other"
    other.mkdir()
    os.link(draft / "model.safetensors", other / "model.safetensors")
    (draft / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"d2t": shard}}))
    done = run("inspect", draft, "--format", "json")
    assert done.status == 1
    assert done.findings["DSP032"]["message"] == "the index names a file that is not there"
    assert all("other" not in (row["file"] or "") for row in done.report["tensors"])


def test_links_out_of_the_folder_are_not_followed(run: Callable, draft: Path) -> None:
    (draft / "model.safetensors").rename(draft.parent / "outside.safetensors")
    (draft / "model.safetensors").symlink_to("../outside.safetensors")
    (draft / "README.md").symlink_to("/etc/passwd")
    (draft / "loop").symlink_to("loop")
    (draft / "up").symlink_to("..")
    done = run("inspect", draft, "--format", "json")
    assert done.status == 1
    assert "DSP024" in done.findings
    assert not done.report["tensors"]
    out = draft.parent / "out"
    assert run("normalize", draft, "--out", out).status == 1
    assert not out.exists()


def test_link_beside_good_weights_is_not_copied(run: Callable, draft: Path) -> None:
    (draft / "README.md").symlink_to("/etc/passwd")
    done = run("normalize", draft, "--out", draft.parent / "out")
    assert not (draft.parent / "out" / "README.md").exists()
    assert done.status in {0, 1}


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", [[1], {"a": 1}, ("a",), Path("a"), b"a" * 300], ids=["list", "dict", "tuple", "object", "bytes"])
def test_pickle_is_recognised_by_its_first_bytes(protocol: int, value: object) -> None:
    if protocol < 2 and isinstance(value, tuple):
        pytest.skip("an old tuple begins like a number in text")
    assert is_pickle(pickle.dumps(value, protocol)[:SNIFFED_BYTES])


@pytest.mark.parametrize("data", [b"", b"{}", b"(", b"# README\n", b"license: mit\n", b"\x80", b"PK\x03\x04" + bytes(60), b"cat\nsat\n", b"I1\n.", (1 << 7).to_bytes(8, "little")])
def test_other_files_are_not_taken_for_pickles(data: bytes) -> None:
    assert is_pickle(data) == (data == b"cat\nsat\n")  # two words alone on two lines are how an old pickle names an object


@pytest.mark.parametrize("name", ["pytorch_model.bin", "README.md", "tokenizer.json", "generation_config.json", "weights"])
def test_pickle_under_any_name_is_reported_and_never_loaded(run: Callable, draft: Path, name: str) -> None:
    trap = draft.parent / "sprung"
    (draft / name).write_bytes(pickle.dumps(Trap(trap)))
    done = run("inspect", draft, "--format", "json")
    assert done.findings["DSP401"]["subject"] == name
    run("normalize", draft, "--out", draft.parent / "out")
    assert not (draft.parent / "out" / name).exists()
    assert not trap.exists()


def test_pickle_in_place_of_weights(run: Callable, draft: Path) -> None:
    trap = draft.parent / "sprung"
    (draft / "model.safetensors").write_bytes(pickle.dumps(Trap(trap)))
    assert run("inspect", draft).status == 1
    assert not trap.exists()


def test_torch_archive_is_reported(run: Callable, draft: Path) -> None:
    with zipfile.ZipFile(draft / "weights.dat", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([1]))
    assert run("inspect", draft, "--format", "json").findings["DSP401"]["subject"] == "weights.dat"


def test_python_files_are_reported_never_imported_never_copied(run: Callable, draft: Path) -> None:
    trap = draft.parent / "sprung"
    for name in ("config.py", "modeling_dspark.py", "__init__.py", "sitecustomize.py", "usercustomize.py", "json.py", "conftest.py"):
        (draft / name).write_text(f"import os; os.mkdir({str(trap)!r})\n")
    edit(draft, lambda config: config.update(auto_map={"AutoModel": "modeling_dspark.Model", "AutoConfig": "config.Config"}))
    done = run("inspect", draft, "--format", "json")
    assert {"DSP402", "DSP404"} <= done.findings.keys()
    assert done.findings["DSP404"]["message"] == "7 code files lie beside the weights"
    rewritten = run("normalize", draft, "--out", draft.parent / "out")
    assert rewritten.status == 0
    assert not list((draft.parent / "out").glob("*.py"))
    assert "auto_map" not in (draft.parent / "out" / "config.json").read_text()
    assert not trap.exists()


def test_python_file_in_the_working_folder_is_not_imported(run: Callable, draft: Path) -> None:
    """The console script does not put the working folder on the path; `-P` shows the same for the module form."""
    trap = draft.parent / "sprung"
    (draft / "rich.py").write_text(f"import os; os.mkdir({str(trap)!r})\n")
    assert run("inspect", draft, PYTHONSAFEPATH="1").status == 0
    assert not trap.exists()


def test_zip_bomb_is_not_opened(run: Callable, draft: Path) -> None:
    with zipfile.ZipFile(draft / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(200_000_000))
    (draft / "config.json.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    done = run("inspect", draft)
    assert done.status == 0
    assert done.peak_bytes < MEMORY_BYTES


def test_zip_in_place_of_weights(run: Callable, draft: Path) -> None:
    with zipfile.ZipFile(draft / "model.safetensors", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(50_000_000))
    done = run("inspect", draft, "--format", "json")
    assert (done.status, done.findings["DSP002"]["severity"]) == (1, "error")


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


GGUFS = {
    "counts": struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + bytes(64),
    "tensor-count": struct.pack("<IQQ", 3, 90_000, 0) + bytes(64),
    "string-length": struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62) + bytes(64),
    "array-length": struct.pack("<IQQ", 3, 0, 1) + text(b"k") + struct.pack("<IIQ", 9, 0, 1 << 61) + bytes(64),
    "nested-arrays": struct.pack("<IQQ", 3, 0, 1) + text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 200_000,
    "alignment": struct.pack("<IQQ", 3, 0, 1) + text(b"general.alignment") + struct.pack("<II", 4, 0) + bytes(64),
    "extents": struct.pack("<IQQ", 3, 1, 0) + text(b"t") + struct.pack("<IQQQQIQ", 4, *[1 << 40] * 4, 0, 0) + bytes(64),
}


@pytest.mark.parametrize("name", GGUFS)
def test_gguf_bomb(run: Callable, draft: Path, name: str) -> None:
    (draft / "model.safetensors").unlink()
    (draft / "draft.gguf").write_bytes(b"GGUF" + GGUFS[name])
    done = run("inspect", draft, "--format", "json")
    assert (done.status, done.findings["DSP013"]["file"]) == (1, "draft.gguf")
    assert done.peak_bytes < MEMORY_BYTES


TRICKS = {"right-to-left": "\u202e", "isolate": "\u2066", "zero-width": "\u200b", "escape": "\x1b[2J", "title": "\x1b]0;x\x07", "newline": "\n", "bell": "\x07", "c1": "\x9b31m"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_deceptive_text_does_not_reach_the_terminal(run: Callable, draft: Path, form: str) -> None:
    everything = "".join(TRICKS.values())
    edit(draft, lambda config: config.update(architectures=[f"DSpark{everything}ledoM"], markov_head_type=f"van{everything}illa", **{f"key{everything}": "x"}))
    for mark in TRICKS.values():
        (draft / f"README{mark}.md").write_text("x")
        (draft / f"mod{mark}el.safetensors").write_bytes(b"x")
    done = run("inspect", draft, "--format", form)
    assert done.status == 1
    for mark in set(TRICKS.values()) - {"\n"}:
        assert mark not in done.out + done.err
    run("normalize", draft, "--out", draft.parent / "out")
    assert not (draft.parent / "out").exists()


@pytest.mark.parametrize("trick", TRICKS)
def test_file_with_a_deceptive_name_is_not_copied(draft: Path, trick: str) -> None:
    (draft / f"README{TRICKS[trick]}.md").write_text("x")
    assert not [item for item in side_files(collect(LocalSource(draft)))[0] if item.path.startswith("README")]


def test_file_that_never_ends_is_not_opened(run: Callable, draft: Path) -> None:
    os.mkfifo(draft / "README.md")
    os.mkfifo(draft / "tokenizer_config.json")
    (draft / "zero").symlink_to("/dev/zero")
    assert run("inspect", draft, limit_s=20).status in {0, 1}


def test_file_names_that_are_not_text(run: Callable, draft: Path) -> None:
    (Path(os.fsdecode(os.fsencode(draft) + b"/\xff\xfe.json"))).write_bytes(b"x")
    done = run("inspect", draft, "--format", "json")
    assert done.status in {0, 1}
