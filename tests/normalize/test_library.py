"""Written Speculators checkpoints load in the speculators package, and its own model computes the logits it computed before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from normalizing import FIXTURES, clean_copy, normalize_draft
from safetensors.torch import load_file

PYTHON = Path.home() / ".cache/spec-convert/envs/speculators-0.9.0/bin/python"
TOOLS = FIXTURES.parent / "tools"
LIBRARY = FIXTURES / "library"
ORACLE = FIXTURES / "oracle" / "library" / "0.9.0"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs the environment that tools/fixtures_env.sh 0.9.0 makes"),
]
CAPTURE = """
import sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
import fixtures_oracle as oracle
torch.set_num_threads(1)
for line in sys.stdin:
    folder, known, out = map(Path, line.rstrip().split("\\t"))
    stored = load_file(known)
    ids = stored["input_ids"] if stored["input_ids"].dim() == 2 else stored["input_ids"][None]
    import json
    taps = json.loads((folder / "config.json").read_text())["aux_hidden_state_layer_ids"]
    states = oracle.target_states(Path("target"), ids, taps)
    found = oracle.capture(oracle.load_draft(folder), ids, states, stored["anchors"])
    save_file({name: value.contiguous() for name, value in found.items()}, out)
"""
ROUTES = ("deepspec", "specforge", "sglang", "sglang-dense")
CASES = [
    *((route, f"{head}-anchor-full") for route in ROUTES[:3] for head in ("vanilla", "gated", "rnn")),
    *(("deepspec", name) for name in ("vanilla-bonus-full", "no-markov", "taps-edge", "sliding-causal", "mixed-noncausal-bonus")),
    *(("sglang-dense", name) for name in ("vanilla-anchor-reduced", "gated-bonus-reduced", "rnn-bonus-reduced")),
    ("speculators", "gated-bonus-reduced"),
]


def test_the_librarys_own_logits_are_unchanged(tmp_path: Path) -> None:
    """From Speculators through each other layout and back; one process, because importing the package takes long."""
    lines = []
    for number, (route, name) in enumerate(CASES):
        source = clean_copy(LIBRARY / "0.9.0" / name, tmp_path / f"{number}-draft")
        there = normalize_draft(source, tmp_path / f"{number}-there", route, target=LIBRARY / "target")
        back = normalize_draft(there.folder, tmp_path / f"{number}-back", target=LIBRARY / "target")
        lines.append(f"{back.folder}\t{ORACLE / f'{name}.safetensors'}\t{tmp_path / f'{number}.safetensors'}\n")
    environment = {"PYTHONPATH": str(TOOLS), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    command = [PYTHON, "-W", "ignore", "-c", CAPTURE]
    done = subprocess.run(command, input="".join(lines), text=True, capture_output=True, cwd=LIBRARY, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for number, (route, name) in enumerate(CASES):
        before, after = load_file(ORACLE / f"{name}.safetensors"), load_file(tmp_path / f"{number}.safetensors")
        assert torch.equal(before["hidden"], after["hidden"]), (route, name)
        if route != "sglang-dense":
            assert torch.equal(before["logits"], after["logits"]), (route, name)
            continue
        tensors = load_file(LIBRARY / "0.9.0" / name / "model.safetensors")
        ids = torch.arange(tensors["d2t"].numel()) + tensors["d2t"]
        assert torch.allclose(before["logits"], after["logits"][..., ids], atol=1e-5), (route, name)
        others = torch.ones(after["logits"].shape[-1], dtype=torch.bool)
        others[ids] = False
        assert torch.softmax(after["logits"], -1)[..., others].eq(0).all()
