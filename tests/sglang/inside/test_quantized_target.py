"""The quantized targets of the GPU run hold the tiny target's weights, read back with the format's own library."""

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from gpu.quantized_target import make_target
from safetensors.torch import load_file
from sglang_harness.environment import TRAINED

PLAIN = load_file(TRAINED / "tiny-target/model.safetensors")


def test_fp8_weights(tmp_path):
    tensors = load_file(make_target("fp8", tmp_path / "target") / "model.safetensors")
    assert tensors["lm_head.weight"].dtype is torch.float8_e4m3fn
    back = tensors["lm_head.weight"].float() * tensors["lm_head.weight_scale"]
    assert (back - PLAIN["lm_head.weight"].float()).abs().max() < PLAIN["lm_head.weight"].float().abs().max() / 16
    assert tensors["model.embed_tokens.weight"].dtype is torch.bfloat16


def test_packed_weights(tmp_path):
    tensors = load_file(make_target("packed", tmp_path / "target") / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    assert f"{name}.weight" not in tensors
    assert "lm_head.weight" not in tensors
    shape = torch.Size(tensors[f"{name}.weight_shape"].tolist())
    values = unpack_from_int32(tensors[f"{name}.weight_packed"], 4, shape)
    scale = tensors[f"{name}.weight_scale"].float().repeat_interleave(128, 1)
    plain = PLAIN[f"{name}.weight"].float()
    assert ((values.float() * scale - plain).abs() <= scale * 0.55).all()
