"""Tensor parallelism: two ranks over gloo draft what one rank drafts, and each holds its own rows only."""

import socket

import pytest
import torch
from safetensors.torch import load_file
from sglang_harness import two_ranks
from sglang_harness.draft import load_draft
from sglang_harness.environment import LIBRARY, TRAINED

from speculators_convert import api
from speculators_convert.layouts import Options, find
from speculators_convert.sglang_plugin import rank_rows
from speculators_convert.write.execution import execute

pytestmark = pytest.mark.usefixtures("world")
CASES = {
    "even": (TRAINED / "tiny-anchor-reduced-gated", TRAINED / "tiny-target", [256, 256]),
    "padded": (LIBRARY / "0.9.0/rnn-anchor-reduced", LIBRARY / "target", [32, 16]),
}
"""Draft, target, and the head rows of each rank: SGLang pads 48 rows to 64."""


class NoSync:
    def sync(self, site, tokens):
        return tokens


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cases = [(str(draft), str(target)) for draft, target, _ in CASES.values()]
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=two_ranks.run, args=(rank, port, cases, str(folder / f"rank{rank}.pt"))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    loaded = [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]
    return {name: [results[index] for results in loaded] for index, name in enumerate(CASES)}


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
    head, w2 = (weights[name].float() for name in ("lm_head.weight", "markov_head.markov_w2.weight"))
    assert [len(rank["w2 rows"]) for rank in ranks[case]] == rows
    assert torch.equal(torch.cat([rank["w2 rows"] for rank in ranks[case]]), w2)
    assert torch.equal(torch.cat([rank["head rows"][:count] for rank, count in zip(ranks[case], rows, strict=True)]), head)
    assert all((rank["head rows"][count:] == 0).all() for rank, count in zip(ranks[case], rows, strict=True))


@pytest.fixture(scope="module", params=[2, 3])
def split_draft(request, tmp_path_factory):
    """The draft as `normalize --tp` writes it: heads in one file per rank, for two ranks and for three."""
    folder = tmp_path_factory.mktemp("split") / "draft"
    inspection = api.look(str(CASES["even"][0]))
    execute(find("speculators").plan(inspection.spec, inspection.checkpoint, Options(tp=request.param)), inspection.source, folder)
    return folder


def test_rank_files_give_the_same_weights(split_draft, world):
    """Served on one rank here, whatever number of ranks the files were written for."""
    whole, split = load_draft(*CASES["even"][:2]), load_draft(split_draft, CASES["even"][1])
    ours = dict(split.named_parameters())
    assert {name for name, parameter in whole.named_parameters() if not torch.equal(parameter, ours[name])} == set()
    assert torch.equal(split.markov_head.targets, whole.markov_head.targets)


def test_a_rank_reads_its_rows_of_rank_files(split_draft):
    weights = load_file(CASES["even"][0] / "model.safetensors")
    for name, rows in rank_rows.read_rows(split_draft, {"lm_head.weight": (256, 512), "markov_head.markov_w2.weight": (130, 200)}):
        first, stop = {"lm_head.weight": (256, 512), "markov_head.markov_w2.weight": (130, 200)}[name]
        assert torch.equal(rows, weights[name][first:stop])
