"""Tensor parallelism: two ranks over gloo draft what one rank drafts, and each holds its own rows only."""

import json
import re
import socket

import observed_ranks
import pytest
import torch
from safetensors.torch import load_file
from sglang_harness import two_ranks
from sglang_harness.draft import load_draft
from sglang_harness.environment import LIBRARY, TRAINED

from speculators_convert import api
from speculators_convert.checkpoint import FIRST_HEADER_READ_BYTES
from speculators_convert.sglang_plugin.rank_rows import open_rank_files

pytestmark = pytest.mark.usefixtures("world")
EVEN = (TRAINED / "tiny-anchor-reduced-gated", TRAINED / "tiny-target", [256, 256])
PADDED = (LIBRARY / "0.9.0/rnn-anchor-reduced", LIBRARY / "target", [32, 16])
"""Draft, target, and the head rows of each rank: SGLang pads 48 rows to 64."""
CASES = {"even": EVEN, "padded": PADDED, "even, two files": EVEN, "even, three files": EVEN, "padded, two files": PADDED}
SPLIT = {"even, two files": 2, "even, three files": 3, "padded, two files": 2}
"""Heads in files per rank, and for how many ranks; two ranks serve all of them."""
HEADS = ("lm_head.weight", "markov_head.markov_w2.weight")


class NoSync:
    def sync(self, site, tokens):
        return tokens


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of each case; the split ones as `normalize --tp` writes them."""
    found = {name: draft for name, (draft, _, _) in CASES.items()}
    for name, tp in SPLIT.items():
        found[name] = tmp_path_factory.mktemp("split") / "draft"
        api.normalize(str(CASES[name][0]), found[name], choices=api.RewriteChoices(layout="speculators", split=tp))
    return found


@pytest.fixture(scope="module")
def observed(folders, tmp_path_factory):
    """What each rank computed, and what it read and logged."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cases = [(str(folders[name]), str(target)) for name, (_, target, _) in CASES.items()]
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=observed_ranks.run, args=(rank, port, cases, str(folder / f"rank{rank}.pt"))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    return [(torch.load(folder / f"rank{rank}.pt"), json.loads((folder / f"rank{rank}.json").read_text())) for rank in range(2)]


@pytest.fixture(scope="module")
def ranks(observed):
    return {name: [results[index] for results, _ in observed] for index, name in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_draft_what_one_drafts(ranks, case, world):
    whole = two_ranks.draft_blocks(load_draft(*CASES[case][:2]), NoSync())
    width = whole["base"].shape[-1]
    torch.testing.assert_close(torch.cat([rank["base"] for rank in ranks[case]], -1)[:, :width], whole["base"], atol=1e-6, rtol=1e-6)
    for rank in ranks[case]:
        for name in ("greedy", "sampled"):
            assert rank[f"{name} tokens"].tolist() == whole[f"{name} tokens"].tolist()
            torch.testing.assert_close(rank[f"{name} logits"], whole[f"{name} logits"], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_each_rank_holds_its_rows(ranks, case):
    weights, rows = load_file(CASES[case][0] / "model.safetensors"), CASES[case][2]
    head, w2 = (weights[name].float() for name in HEADS)
    assert [len(rank["w2 rows"]) for rank in ranks[case]] == rows
    assert torch.equal(torch.cat([rank["w2 rows"] for rank in ranks[case]]), w2)
    assert torch.equal(torch.cat([rank["head rows"][:count] for rank, count in zip(ranks[case], rows, strict=True)]), head)
    assert all((rank["head rows"][count:] == 0).all() for rank, count in zip(ranks[case], rows, strict=True))


def bounds(case, rank):
    """First row of a rank, and the one after its last."""
    first, total = CASES[case][2][0], sum(CASES[case][2])
    return (0, first) if rank == 0 else (first, total)


def spread(reads):
    """Every byte that was read, once for each time."""
    return [(file, position) for file, start, stop in reads for position in range(start, stop)]


def row_ranges(folder, first, stop):
    """Where rows first to stop of both heads lie, as file, start and stop, and the headers and manifest that say so."""
    manifest = json.loads((folder / "spec-convert.ranks.json").read_text())
    rows, headers = [], {("spec-convert.ranks.json", 0, (folder / "spec-convert.ranks.json").stat().st_size)}
    for name, item in ((tensor["name"], item) for tensor in manifest["tensors"] for item in tensor["slices"]):
        begin, end = max(first, item["first_row"]), min(stop, item["stop_row"])
        if begin < end:
            data = (folder / item["file"]).read_bytes()
            base = 8 + int.from_bytes(data[:8], "little")
            low, high = json.loads(data[8:base])[name]["data_offsets"]
            row = (high - low) // (item["stop_row"] - item["first_row"] + item["padding_rows"])
            rows.append((item["file"], base + low + (begin - item["first_row"]) * row, base + low + (end - item["first_row"]) * row))
            headers |= {(item["file"], 0, base)}
    return rows, headers


def loads(observed, folder):
    """Reads of each rank while it loaded the draft of `folder`."""
    return [[(file, start, stop) for where, file, start, stop, loading in seen["reads"] if where == str(folder) and loading] for _, seen in observed]


@pytest.mark.parametrize("case", SPLIT)
def test_each_rank_reads_its_rows_and_headers_only(observed, folders, case):
    """Byte for byte, and none of them twice."""
    folder = folders[case]
    for rank, read in enumerate(loads(observed, folder)):
        rows, headers = row_ranges(folder, *bounds(case, rank))
        assert sorted(spread(read)) == sorted(spread(rows) + spread(headers))


@pytest.mark.parametrize("case", SPLIT)
def test_the_ranks_rows_are_disjoint_and_all_of_them(observed, folders, case):
    folder, weights = folders[case], load_file(CASES[case][0] / "model.safetensors")
    _, headers = row_ranges(folder, 0, sum(CASES[case][2]))
    mine, theirs = (set(spread(read)) - set(spread(headers)) for read in loads(observed, folder))
    assert mine & theirs == set()
    assert mine | theirs == set(spread(row_ranges(folder, 0, sum(CASES[case][2]))[0]))
    assert len(mine) + len(theirs) == sum(weights[name].nbytes for name in HEADS)


@pytest.mark.parametrize("case", SPLIT)
def test_the_log_counts_what_was_read(observed, folders, case):
    whole = sum(load_file(CASES[case][0] / "model.safetensors")[name].nbytes for name in HEADS)
    index = list(SPLIT).index(case)
    total = sum(CASES[case][2])
    for rank, read in enumerate(loads(observed, folders[case])):
        first, stop = bounds(case, rank)
        line = [line for line in observed[rank][1]["log"] if "rank files" in line][index]
        assert f"DSpark rank {rank} read rows {first} to {stop} of {total} from rank files, of {' and '.join(HEADS)}:" in line
        rows, of_all, headers = map(int, re.search(r"(\d+) bytes of (\d+), and (\d+) bytes of headers", line).groups())
        assert (rows + headers, of_all) == (len(spread(read)), whole)
        assert rows == len(spread(row_ranges(folders[case], first, stop)[0]))


@pytest.mark.parametrize("case", SPLIT)
def test_checks_before_the_load_read_the_start_of_rank_files_only(observed, folders, case):
    """However long a file is: what `inspect` reads of any safetensors file to know its header, of the files and of the whole that they make."""
    for _, seen in observed:
        read = [(file, start, stop) for where, file, start, stop, loading in seen["reads"] if where == str(folders[case]) and not loading and file.startswith("ranks/")]
        assert read
        assert max(stop for _, _, stop in read) <= 2 * FIRST_HEADER_READ_BYTES


@pytest.mark.parametrize("case", ["even, two files", "even, three files"])
def test_rank_files_on_one_rank_are_the_whole(folders, case, world):
    whole, split = load_draft(*EVEN[:2]), load_draft(folders[case], EVEN[1])
    ours = dict(split.named_parameters())
    assert {name for name, parameter in whole.named_parameters() if not torch.equal(parameter, ours[name])} == set()
    assert torch.equal(split.markov_head.targets, whole.markov_head.targets)


@pytest.mark.parametrize("case", ["even, two files", "even, three files"])
def test_rows_across_files(folders, case):
    weights, files = load_file(EVEN[0] / "model.safetensors"), open_rank_files(folders[case])
    for name, first, stop in (("lm_head.weight", 130, 400), ("markov_head.markov_w2.weight", 130, 200), ("markov_head.markov_w2.weight", 512, 512)):
        assert torch.equal(files.read(name, first, stop), weights[name][first:stop])
    assert files.row_bytes == weights["lm_head.weight"][130:400].nbytes + weights["markov_head.markov_w2.weight"][130:200].nbytes
