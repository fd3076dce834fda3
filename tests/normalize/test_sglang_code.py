"""The flat files in SGLang 0.5.23's own code, on the CPU: its config classes read the values meant, its Markov heads give the biases meant."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from normalizing import FIXTURES, clean_copy, normalize_draft, read_draft
from safetensors.torch import load_file, save_file

from speculators_convert.smoke.engine.heads import markov_head
from speculators_convert.smoke.engine.load import Placement, read_weights
from speculators_convert.target.vocabulary import read_tables

PYTHON = Path.home() / ".cache/spec-convert/envs/sglang-0.5.23/bin/python"
LIBRARY = FIXTURES / "library"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON.exists(), reason="needs an environment with sglang 0.5.23")]
INSIDE = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from sglang.srt.models import dspark
from sglang.srt.models.dflash import _get_dflash_layer_attention_params
from sglang.srt.speculative.dspark_components import dspark_config
torch.set_num_threads(1)
read = {}
for folder in map(Path, sys.argv[2:]):
    config = AutoConfig.from_pretrained(folder)
    parsed = dspark_config.parse_dspark_draft_config(draft_hf_config=config)
    layers = [_get_dflash_layer_attention_params(config, layer) for layer in range(config.num_hidden_layers)]
    read[folder.name] = {
        "gamma": parsed.gamma, "target_layer_ids": list(parsed.target_layer_ids), "mask_token_id": parsed.mask_token_id, "markov_rank": parsed.markov_rank,
        "markov_head_type": parsed.markov_head_type, "sample_from_anchor": dspark_config.get_dspark_sample_from_anchor(config), "dtype": str(config.dtype),
        "rope": dict(config.rope_parameters), "layers": [[size, kind.name] for size, kind in layers], "class": type(config).__name__,
    }
    head = dspark.build_markov_head(config)
    weights = load_file(folder / "model.safetensors")
    prefix = "markov_head."
    head.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}, strict=True)
    head = head.float()
    given = load_file(folder.with_suffix(".given"))
    state, biases = head.init_state(given["hidden"][:, 0]), []
    for slot in range(given["hidden"].shape[1]):
        bias, state = head.step_bias(given["previous"][:, slot], hidden_states=given["hidden"][:, slot], state=state)
        biases.append(bias)
    save_file({"biases": torch.stack(biases, 1).detach().contiguous()}, folder.with_suffix(".biases"))
Path(sys.argv[1]).write_text(json.dumps(read))
"""
NAMES = [f"{head}-{anchor}-{size}" for head in ("vanilla", "gated", "rnn") for anchor in ("anchor", "bonus") for size in ("full", "reduced")]
NAMES += ["sliding-causal", "mixed-noncausal-bonus", "sliding-noncausal"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    """All drafts written for SGLang, and what its code reads; one process, because importing it takes long."""
    folder = tmp_path_factory.mktemp("sglang")
    generator = torch.Generator().manual_seed(5)
    for name in NAMES:
        source = clean_copy(LIBRARY / "0.9.0" / name, folder / f"{name}-source")
        spec = read_draft(source).spec
        normalize_draft(source, folder / name, "sglang-dense" if spec.reduced_vocabulary else "sglang", target=LIBRARY / "target")
        save_file({"hidden": torch.randn(4, 5, 32, generator=generator), "previous": torch.randint(0, 96, (4, 5), generator=generator)}, folder / f"{name}.given")
    command = [PYTHON, "-W", "ignore", "-c", INSIDE, str(folder / "read.json"), *(str(folder / name) for name in NAMES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads((folder / "read.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_sglang_reads_the_facts_of_the_draft(name: str, seen: tuple[Path, dict[str, dict[str, object]]]) -> None:
    spec = read_draft(seen[0] / f"{name}-source").spec
    assert spec.markov is not None
    assert spec.layer_types is not None
    window = (spec.sliding_window or 0) - 1
    kinds = {"full_attention": [-1, "ENCODER_ONLY"], "sliding_attention": [window, "DECODER" if spec.sliding_causal else "ENCODER_ONLY"]}
    pad = 8 if spec.reduced_vocabulary else 0
    assert seen[1][name] == {
        "gamma": spec.gamma,
        "target_layer_ids": list(spec.target_layer_ids or ()),
        "mask_token_id": spec.mask_token_id,
        "markov_rank": (spec.markov.rank or 0) + pad,
        "markov_head_type": spec.markov.kind,
        "sample_from_anchor": "anchor" in name or name in ("sliding-causal", "sliding-noncausal"),
        "dtype": "torch.bfloat16",
        "rope": {"rope_theta": 50000.0, "rope_type": "default"},
        "layers": [kinds[kind.value] for kind in spec.layer_types],
        "class": "Qwen3Config",
    }


@pytest.mark.parametrize("name", NAMES)
def test_sglangs_heads_give_the_drafts_biases_and_rule_out_other_ids(name: str, seen: tuple[Path, dict[str, dict[str, object]]]) -> None:
    folder = seen[0]
    read = read_draft(folder / f"{name}-source")
    head = markov_head(read.spec, read_weights(read.spec, read.source, Placement()))
    given, wide = load_file(folder / f"{name}.given"), load_file(folder / f"{name}.biases")["biases"]
    state, narrow = head.start(4), []
    for slot in range(5):
        bias = head.bias(given["hidden"][:, slot], given["previous"][:, slot], state)
        state = bias.state
        narrow.append(bias.logits)
    targets = read_tables(read.checkpoint).targets(read.spec.d2t)
    ids = torch.arange(96) if targets is None else torch.from_numpy(np.array(targets))
    assert torch.allclose(wide[..., ids], torch.stack(narrow, 1), atol=1e-5)
    others = torch.ones(96, dtype=torch.bool)
    others[ids] = False
    assert bool((wide[..., others] < -30_000).all())
