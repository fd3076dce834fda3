"""The null draft: same geometry, the draft's own backbone bytes, nothing accepted, plain greedy output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from speculators_convert import api
from speculators_convert.container.header import Tensor, parse
from speculators_convert.errors import RefusedError, UsageError
from speculators_convert.model import sha256_hex
from speculators_convert.results.smoke import Prompt
from speculators_convert.smoke.engine import decode, loop
from speculators_convert.smoke.engine.load import Placement, read_tensor, read_weights
from speculators_convert.smoke.engine.model import Draft
from speculators_convert.smoke.engine.reading import Reading
from speculators_convert.smoke.engine.target import Target, load_target
from speculators_convert.smoke.null_draft import DEFAULT_RANK, PROPOSE, write_null_draft
from speculators_convert.sources import LocalSource
from speculators_convert.spec import D2T, DraftSpec, MarkovKind, known

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRAINED = FIXTURES / "trained"
TRAINED_NAMES = ("tiny-anchor-full-vanilla", "tiny-bonus-reduced-vanilla", "tiny-anchor-reduced-gated", "tiny-sliding-causal", "tiny-sliding-noncausal")
LIBRARY = sorted(path.parent for path in FIXTURES.glob("library/*/*/config.json"))
GOOD = FIXTURES / "good"
REFUSED = {
    "bundled-v4": "a draft inside its target's files",
    "bundled-v4.1": "a draft inside its target's files",
    "nemotron-bf16": "attention sinks",
    "nemotron-nvfp4": "quantized weights",
}
OTHERS = [path for path in sorted(GOOD.iterdir()) if path.is_dir() and path.name not in REFUSED]
LIMITS = loop.Limits(64, (0,))
SAME = (
    "anchor", "gamma", "query_slots", "target_layer_ids", "target_vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings", "layer_types", "sliding_window", "sliding_causal", "mask_token_id", "confidence",
)  # fmt: skip
"""What the control must share with its draft."""


def target_of(draft: Path, folder: Path) -> Path:
    """The draft's target; the drafts of `good` have none on disk, so its config is all that is made."""
    if draft.parent == TRAINED:
        return TRAINED / "tiny-target"
    if "library" in draft.parts:
        return FIXTURES / "library" / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": api.look(str(draft)).spec.target_vocab_size}))
    return folder


def null_of(draft: Path, tmp_path: Path) -> tuple[DraftSpec, Path]:
    looked = api.look(str(draft))
    return looked.spec, write_null_draft(looked.spec, looked.source, target_of(draft, tmp_path / "target"), tmp_path / "null")


def tensor_bytes(folder: Path) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """By role: dtype, shape and digest."""
    looked = api.look(str(folder))
    source = looked.source
    return {role: (ref.dtype, ref.shape, sha256_hex(source.read(ref.file, ref.start, ref.stop))) for role, ref in looked.spec.tensors.items()}


@pytest.mark.parametrize("draft", [*(TRAINED / name for name in TRAINED_NAMES), *LIBRARY, *OTHERS], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_geometry_and_backbone_are_the_drafts_and_the_head_proposes_the_mask(draft: Path, tmp_path: Path) -> None:
    spec, folder = null_of(draft, tmp_path)
    report = api.look(str(folder))
    null = report.spec
    assert {name: getattr(null, name) for name in SAME} == {name: getattr(spec, name) for name in SAME}
    assert {"theta": null.rope.theta, "type": null.rope.type, "scaling": null.rope.scaling} == {"theta": spec.rope.theta, "type": spec.rope.type, "scaling": spec.rope.scaling}
    assert (null.draft_vocab_size, null.d2t, known(null.markov, "markov").kind) == (spec.target_vocab_size, D2T.NONE, MarkovKind.VANILLA)
    assert null.sliding_causal == spec.sliding_causal
    before, after = tensor_bytes(draft), tensor_bytes(folder)
    made = {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight"}
    assert {role: after[role] for role in after if role not in made} == {
        role: item for role, item in before.items() if not role.startswith(("markov_head.", "lm_head.", "embed_tokens.")) and role not in ("d2t", "t2d")
    }
    w1, w2 = (read_tensor(report.source, null.tensors[f"markov_head.markov_w{number}.weight"]).float() for number in (1, 2))
    rank = (spec.markov.rank if spec.markov else None) or DEFAULT_RANK
    assert w1.shape == w2.shape == (spec.target_vocab_size, rank)
    assert bool((w1[:, 0] == 1).all())
    assert torch.count_nonzero(w1) == spec.target_vocab_size
    assert float(w2[known(spec.mask_token_id, "mask"), 0]) == PROPOSE
    assert torch.count_nonzero(w2) == 1
    names = {tensor.name for path in folder.glob("*.safetensors") for tensor in header_of(path)}
    assert names == set(after)


def header_of(path: Path) -> tuple[Tensor, ...]:
    data = path.read_bytes()
    return parse(data, len(data)).tensors


@pytest.mark.parametrize("name", TRAINED_NAMES)
def test_nothing_is_accepted_and_the_output_is_plain_greedy(name: str, tmp_path: Path, pair_of: Callable[..., tuple[Draft, Target]], prompts: tuple[Prompt, ...]) -> None:
    _, folder = null_of(TRAINED / name, tmp_path)
    opened = api.look(str(folder))
    _, target = pair_of(name)
    draft = Draft(Reading(opened.spec), read_weights(opened.spec, opened.source, Placement()), target.shared)
    runs = loop.generate(draft, target, [prompt.input_ids for prompt in prompts], LIMITS)
    assert [tuple(run.tokens) for run in runs] == [prompt.reference_output_ids for prompt in prompts]
    assert {count for run in runs for count in run.accepted} == {0}
    assert sum(len(run.accepted) for run in runs) == sum(len(run.tokens) - 1 for run in runs)


@pytest.mark.parametrize("draft", LIBRARY, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_random_weights_are_overruled_too(draft: Path, tmp_path: Path, library_target: Callable[[DraftSpec], Target]) -> None:
    """Wide random logits: the bias still decides, whatever the head of the draft was. The draft proposes the mask in each slot."""
    spec, folder = null_of(draft, tmp_path)
    opened = api.look(str(folder))
    target = library_target(opened.spec)
    null = Draft(Reading(opened.spec), read_weights(opened.spec, opened.source, Placement()), target.shared)
    state = loop.empty(null, target, 2, 40)
    loop.prefill(null, target, state, [[5, 6, 7, 8], [9, 10, 11]], decode.best)
    proposal = decode.propose(null, state, 5)
    assert proposal.tokens.tolist() == [[spec.mask_token_id] * known(spec.gamma, "gamma")] * 2


@pytest.fixture(scope="module")
def library_target() -> Callable[[DraftSpec], Target]:
    whole = load_target(FIXTURES / "library" / "target", (), Placement())
    return lambda spec: Target(whole.model, known(spec.target_layer_ids, "target_layer_ids"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_flat_layout_cannot_carry_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=f"no null draft can be written for this draft; measured {REFUSED[name]}"):
        null_of(GOOD / name, tmp_path)
    assert not (tmp_path / "null").exists()


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    looked = api.look(str(TRAINED / TRAINED_NAMES[1]))
    folders = [write_null_draft(looked.spec, looked.source, TRAINED / "tiny-target", tmp_path / name) for name in ("one", "two")]
    one, two = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert one == two


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    looked = api.look(str(TRAINED / TRAINED_NAMES[0]))
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        write_null_draft(looked.spec, looked.source, TRAINED / "tiny-target", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_another_target_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    looked = api.look(str(TRAINED / TRAINED_NAMES[0]))
    with pytest.raises(RefusedError, match="another vocabulary; measured 96; expected 1024"):
        write_null_draft(looked.spec, looked.source, FIXTURES / "library" / "target", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mask_token_id": 1024}, "the mask token is outside the vocabulary"),
        ({"mask_token_id": None}, "mask_token_id is not known"),
        ({"quantization": "fp8"}, "no null draft can be written for this draft; measured quantized weights"),
        ({"hidden_size": 64}, "a tensor is not as the draft's sizes ask for"),
    ],
    ids=["mask", "no mask", "quantized", "shape"],
)
def test_a_draft_without_a_control_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    looked = api.look(str(TRAINED / TRAINED_NAMES[0]))
    with pytest.raises(RefusedError) as caught:
        write_null_draft(looked.spec.model_copy(update=change), looked.source, TRAINED / "tiny-target", tmp_path / "out")
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_no_read_is_larger_than_a_chunk(tmp_path: Path) -> None:
    """A tensor of 3 MiB is copied in pieces: memory does not depend on its size."""
    looked = api.look(str(TRAINED / TRAINED_NAMES[0]))
    reads: list[int] = []

    class Watched(LocalSource):
        def read(self, path: str, start: int, stop: int) -> bytes:
            reads.append(stop - start)
            return super().read(path, start, stop)

    write_null_draft(looked.spec, Watched(TRAINED / TRAINED_NAMES[0]), TRAINED / "tiny-target", tmp_path / "out")
    assert sum(reads) == sum(ref.size_bytes for role, ref in looked.spec.tensors.items() if not role.startswith(("markov_head.", "embed_tokens.", "lm_head.")) and role != "d2t")
    assert max(reads) <= 1 << 20


def test_writing_needs_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from speculators_convert import api
from speculators_convert.smoke.null_draft import write_null_draft
looked = api.look({str(TRAINED / TRAINED_NAMES[2])!r})
write_null_draft(looked.spec, looked.source, Path({str(TRAINED / "tiny-target")!r}), Path({str(tmp_path / "out")!r}))
print(sorted(set(sys.modules) & {{"torch", "transformers", "sglang"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
