"""The tiny target with quantized weights, its lm_head included: FP8 (compressed-tensors), or 4 bits packed into int32 without a `weight`."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sglang_harness.environment import TRAINED

KINDS = ("fp8", "packed")
_TARGETS = ["Linear", "re:.*lm_head"]
_GROUP = 128


def make_target(kind: str, folder: Path) -> Path:
    """A folder that SGLang serves; the weights are the tiny target's, rounded."""
    source = TRAINED / "tiny-target"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = _scheme(kind)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(source / "model.safetensors").items():
        linear = weight.ndim == 2 and "embed_tokens" not in name
        tensors |= (_fp8 if kind == "fp8" else _packed)(name.removesuffix(".weight"), weight) if linear else {name: weight}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _scheme(kind: str) -> dict:
    eight = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": "channel"}
    four = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False, "strategy": "group", "group_size": _GROUP}
    inputs = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"} if kind == "fp8" else None
    group = {"targets": _TARGETS, "weights": eight if kind == "fp8" else four, "input_activations": inputs, "output_activations": None}
    form = "float-quantized" if kind == "fp8" else "pack-quantized"
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": [], "config_groups": {"group_0": group}}


def _fp8(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-6) / 448
    return {f"{name}.weight": (weight.float() / scale).to(torch.float8_e4m3fn), f"{name}.weight_scale": scale}


def _packed(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Eight 4-bit values in each int32, lowest bits first, stored as value + 8."""
    rows, columns = weight.shape
    grouped = weight.float().view(rows, columns // _GROUP, _GROUP)
    scale = grouped.abs().amax(-1).clamp(min=1e-6) / 7
    values = ((grouped / scale[..., None]).round().clamp(-8, 7) + 8).to(torch.int32).view(rows, columns // 8, 8)
    packed = sum(values[..., index] << (4 * index) for index in range(8))
    return {f"{name}.weight_packed": packed.to(torch.int32), f"{name}.weight_scale": scale.to(torch.bfloat16), f"{name}.weight_shape": torch.tensor([rows, columns])}
