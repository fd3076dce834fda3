"""One drafted block through SGLang's own block loop and sampler, with heads of both vocabularies."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from sglang.srt.configs.model_config import ModelConfig  # noqa: F401  (SGLang's import order)
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.models.dspark import DSparkDraftModel
from sglang.srt.speculative.dspark_components import dspark_draft
from sglang.srt.speculative.dspark_components.dspark_draft import DraftNoise, select_draft_hidden_without_anchor
from sglang.srt.speculative.dspark_components.dspark_draft_sampler import DsparkDraftSampler, _step_logits_width
from sglang.srt.utils.hf_transformers_utils import get_config
from sglang_harness.draft import load_draft
from sglang_harness.environment import LIBRARY, ROOT, TRAINED

from speculators_convert.errors import RefusedError
from speculators_convert.sglang_plugin import sharing
from speculators_convert.sglang_plugin.block import NEVER
from speculators_convert.sglang_plugin.markov import ReducedMarkov, advance
from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel

pytestmark = pytest.mark.usefixtures("world")
TARGET = TRAINED / "tiny-target"
DRAFTS = ["tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal"]


class NoSync:
    """One rank: nothing to agree on."""

    def sync(self, site, tokens):
        return tokens


def noise(seed=5):
    return DraftNoise(key=seed, offset=torch.zeros(1, dtype=torch.int64))


@pytest.fixture(params=DRAFTS, scope="module")
def model(request, world):
    return load_draft(TRAINED / request.param, TARGET)


@pytest.fixture(scope="module")
def states(model):
    """Final states [3, slots, H] and anchors [3] of three blocks."""
    generator = torch.Generator().manual_seed(3)
    slots = model.gamma if model.sample_from_anchor else model.gamma + 1
    return torch.randn(3, slots, 128, generator=generator) * 2, torch.randint(3, 1000, (3,), generator=generator)


@torch.no_grad()
def draft(model, states, anchors, *, temperature=0.0, greedy=False, seed=5, rows=3):
    states, anchors = states[:rows], anchors[:rows]
    if model.sample_from_anchor:
        flat, sampled = states.reshape(-1, 128), states
    else:
        flat, sampled = select_draft_hidden_without_anchor(states.reshape(-1, 128), bs=rows, gamma=model.gamma)
    base, _ = model.compute_base_logits(flat)
    return dspark_draft.draft_markov_block(
        markov_head=model.markov_head, base_logits=base.view(rows, model.gamma, -1), anchor_tokens=anchors, draft_hidden=sampled,
        step_temperatures=torch.full((rows,), temperature), noise=noise(seed), tp_sync=NoSync(), greedy_draft=greedy,
    )  # fmt: skip


@torch.no_grad()
def plain_chain(model, states, anchors):
    """The same block by definition: argmax of base logits plus bias, mapped, fed to the next step. Ids and [3, gamma, own vocabulary] logits."""
    head, first = model.markov_head, 0 if model.sample_from_anchor else 1
    weight = model.lm_head.weight if model.draft_lm_head is None else model.draft_lm_head.weight
    width = head.targets.numel() if isinstance(head, ReducedMarkov) else head.vocab_size
    targets = head.targets if isinstance(head, ReducedMarkov) else torch.arange(width)
    state, previous, tokens, logits = head.init_state(states), anchors, [], []
    if getattr(head, "starts_at_anchor", False):
        state = advance(head, previous, states[:, 0], state)
    for slot in range(first, states.shape[1]):
        bias, state = head.step_bias(previous, hidden_states=states[:, slot], state=state)
        row = (states[:, slot] @ weight.T)[:, :width] + bias
        previous = targets[row.argmax(-1)]
        tokens.append(previous)
        logits.append(row)
    return torch.stack(tokens, 1), torch.stack(logits, 1), targets


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("greedy", [True, False])
def test_greedy_block_is_the_mapped_argmax_chain(model, states, greedy, rows):
    tokens, kept = draft(model, *states, greedy=greedy, rows=rows)
    expected, logits, targets = plain_chain(model, *states)
    assert tokens.tolist() == expected[:rows].tolist()
    if greedy:
        assert kept is None
        return
    assert kept.shape == (rows, model.gamma, 1024)
    torch.testing.assert_close(kept[..., targets], logits[:rows], atol=1e-5, rtol=1e-5)
    unmapped = torch.ones(1024, dtype=torch.bool)
    unmapped[targets] = False
    assert kept.isfinite().all()
    assert (kept[..., unmapped] == NEVER).all()
    assert (torch.softmax(kept / 1e-5, -1)[..., unmapped] == 0).all()


def test_sampled_block_follows_the_logits_it_keeps(model, states):
    """2,000 draws of the first token against the softmax of the kept logits, and only tokens that the draft can name."""
    repeated = states[0][:1].expand(500, *states[0].shape[1:]), states[1][:1].expand(500)
    counts = torch.zeros(1024)
    for seed in range(4):
        tokens, kept = draft(model, *repeated, temperature=1.0, seed=seed, rows=500)
        counts += torch.bincount(tokens[:, 0], minlength=1024)
        if isinstance(model.markov_head, ReducedMarkov):
            assert set(tokens.flatten().tolist()) <= set(model.markov_head.targets.tolist())
    expected = torch.softmax(kept[0, 0].float(), -1)
    assert (counts / 2000 - expected).abs().max() < 4.5 * 0.5 / 2000**0.5


@torch.no_grad()
def test_sampler_of_the_draft_graph_gives_the_same_block(model, states):
    """`DsparkDraftSampler` is the code that SGLang captures behind the draft's graph; here it runs without one."""
    slots = states[0].shape[1]
    sampler = DsparkDraftSampler(model=model, gamma=model.gamma, max_bs=4, device="cpu", noise=noise(), tp_sync=NoSync(), greedy_draft=False)
    sampler.step_logits = torch.empty(4, model.gamma, _step_logits_width(model))  # allocated lazily otherwise, after a question to CUDA
    ids = torch.full((3, slots), int(model.config.mask_token_id))
    ids[:, 0] = states[1]
    sampler.params.step_temperatures.zero_()
    sampler(states[0].reshape(-1, 128), ids.flatten())
    tokens, kept = draft(model, *states)
    assert sampler.out[: 3 * model.gamma].view(3, -1).tolist() == tokens.tolist()
    assert torch.equal(sampler.step_logits[:3], kept)
    features = states[0] if model.sample_from_anchor else states[0][:, 1:]
    confidence, _ = model.compute_confidence(anchor_tokens=states[1], draft_tokens=tokens, confidence_features=features.reshape(-1, 128))
    assert torch.equal(sampler.confidence_out[:3], confidence)


@torch.no_grad()
def test_full_vocabulary_draft_computes_what_the_stock_class_computes(world):
    folder = TRAINED / "tiny-anchor-full-vanilla"
    ours, stock = load_draft(folder, TARGET), DSparkDraftModel(get_config(str(folder), trust_remote_code=False)).eval()
    stock.load_weights(load_file(folder / "model.safetensors").items())
    stock.attach_shared_modules(embed_tokens=ours.embed_tokens, lm_head=ours.lm_head)
    states, anchors = torch.randn(2, 6, 128), torch.tensor([7, 900])
    for temperature, greedy in ((0.0, True), (0.0, False), (1.0, False)):
        mine, theirs = (draft(item, states, anchors, temperature=temperature, greedy=greedy, rows=2) for item in (ours, stock))
        assert mine[0].tolist() == theirs[0].tolist()
        assert greedy or torch.equal(mine[1], theirs[1])


@pytest.mark.parametrize("name", ["rnn-bonus-reduced", "rnn-bonus-full"])
def test_recurrent_head_of_a_bonus_draft_reads_the_anchor_row(name, world):
    """Without the row the bias of the first sampled slot differs: the state would still be zero."""
    model = load_draft(LIBRARY / "0.9.0" / name, LIBRARY / "target")
    assert model.markov_head.starts_at_anchor
    known = load_file(ROOT / "fixtures/oracle/library/0.9.0" / f"{name}.safetensors")
    hidden, previous = known["hidden"], known["prev_token_ids"]
    with torch.no_grad():
        state = advance(model.markov_head, previous[:, 0], hidden[:, 0], model.markov_head.init_state(hidden))
        bias, _ = model.markov_head.step_bias(previous[:, 1], hidden_states=hidden[:, 1], state=state)
        idle, _ = model.markov_head.step_bias(previous[:, 1], hidden_states=hidden[:, 1], state=torch.zeros_like(state))
        base, _ = model.compute_base_logits(hidden[:, 1])
    torch.testing.assert_close(base + bias, known["logits"][:, 1], atol=1e-4, rtol=1e-4)
    assert (idle - bias).abs().max() > 1e-2


def test_target_head_without_a_weight_is_no_obstacle(world):
    """Packed heads (GPTQ, AWQ, compressed-tensors) have no `weight`; a reduced draft takes the embedding and the width only."""
    model = load_draft(TRAINED / "tiny-anchor-reduced-gated", TARGET)
    embedding = model.embed_tokens
    model.embed_tokens = model.lm_head = None
    head = ParallelLMHead(1024, 128)
    del head.weight
    target = SimpleNamespace(lm_head=head, get_input_embeddings=lambda: embedding)
    sharing.attach(None, draft_model=model, model_runner=SimpleNamespace(model=target), gamma=6)
    assert model.embed_tokens is embedding
    assert _step_logits_width(model) == 1024
    target.lm_head = ParallelLMHead(2048, 128)
    with pytest.raises(RefusedError, match="another target vocabulary"):
        sharing.attach(None, draft_model=model, model_runner=SimpleNamespace(model=target), gamma=6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop("markov_head.markov_w2.weight"), r"markov_head\.markov_w2\.weight.*1 missing, 0 unknown"),
        (lambda weights: weights.pop("d2t"), "d2t.*1 missing, 0 unknown"),
        (lambda weights: weights.update({"layers.0.extra.weight": torch.zeros(1)}), r"layers\.0\.extra\.weight.*0 missing, 1 unknown"),
        (lambda weights: weights["d2t"].__setitem__(511, 600), "the mapping leaves the target vocabulary"),
    ],
    ids=["markov_w2", "d2t", "extra", "range"],
)
def test_loader_refuses_what_sglang_would_skip(change, words, world):
    """The launch checks the files; this guards whatever else a loader hands over."""
    folder = TRAINED / "tiny-anchor-reduced-gated"
    model, weights = SpeculatorsDSparkModel(get_config(str(folder), trust_remote_code=False)), load_file(folder / "model.safetensors")
    change(weights)
    with pytest.raises(RefusedError, match=words):
        model.load_weights(weights.items())


def test_t2d_is_not_used(world):
    """A loader that hands over nonsense for t2d, or nothing, gives the same model: the checks read it, decoding does not."""
    folder = TRAINED / "tiny-anchor-reduced-gated"
    weights, states = load_file(folder / "model.safetensors"), []
    for table in (weights["t2d"], torch.zeros_like(weights["t2d"]), None):
        model = SpeculatorsDSparkModel(get_config(str(folder), trust_remote_code=False))
        model.load_weights((name, table if name == "t2d" else tensor) for name, tensor in weights.items() if name != "t2d" or table is not None)
        states.append({**dict(model.named_parameters()), **dict(model.named_buffers())})
    assert not any("t2d" in name for name in states[0])
    for other in states[1:]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in states[0].items())


def test_update_at_run_time_may_bring_some_tensors_only(world):
    model = load_draft(TRAINED / "tiny-anchor-reduced-gated", TARGET)
    head = torch.full((512, 128), 0.25)
    model.confidence_head = None
    model.load_weights([("lm_head.weight", head)])
    assert torch.equal(model.draft_lm_head.weight.detach(), head)
