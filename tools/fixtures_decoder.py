"""A second opinion on the oracle: the draft's block pass written from its description.

It shares no code with the speculators package (nor with the converter), works on raw
tensors in float32, and is used in two places: to confirm every oracle file, and to
measure the acceptance of the trained drafts.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

MASKED = float("-inf")


def load_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder, floating ones as float32."""
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                value = file.get_tensor(name)
                tensors[name] = value.float() if value.is_floating_point() else value
    return tensors


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square normalisation."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Half-rotation RoPE over ``[n, heads, head_dim]``."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Draft:
    """One draft checkpoint together with the target's embedding and head."""

    def __init__(self, folder: Path, target_folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.decoder = self.config["transformer_layer_config"]
        self.w = load_tensors(folder)
        target = load_tensors(target_folder)
        self.embed = target["model.embed_tokens.weight"]
        reduced = self.config["draft_vocab_size"] != self.decoder["vocab_size"]
        self.head = self.w["lm_head.weight"] if reduced else target["lm_head.weight"]
        self.d2t = self.w.get("d2t", torch.zeros(len(self.head), dtype=torch.long))
        self.block = self.config["block_size"]
        self.anchor_first = self.config["sample_from_anchor"]
        rope = self.decoder.get("rope_parameters", self.decoder)
        self.theta, self.eps = rope["rope_theta"], self.decoder["rms_norm_eps"]

    def context(self, aux: Tensor) -> Tensor:
        """What every layer's keys and values are made of."""
        return rms(aux @ self.w["fc.weight"].T, self.w["hidden_norm.weight"], self.eps)

    def _mask(self, layer: int, anchor: int) -> Tensor:
        mask = torch.zeros(self.block, anchor + self.block)
        if self.decoder["layer_types"][layer] == "sliding_attention":
            mask[:, : max(0, anchor - self.decoder["sliding_window"])] = MASKED
            if not self.config["sliding_window_non_causal"]:
                mask[:, anchor:] = torch.full((self.block, self.block), MASKED).triu(1)
        return mask

    def _attend(self, layer: int, x: Tensor, context: Tensor) -> Tensor:
        name, dim = f"layers.{layer}.self_attn.", self.decoder["head_dim"]
        anchor, heads = len(context), self.decoder["num_attention_heads"]
        keys_in = torch.cat([context, x])
        positions = torch.arange(anchor + self.block)
        q = (x @ self.w[name + "q_proj.weight"].T).view(self.block, heads, dim)
        k = (keys_in @ self.w[name + "k_proj.weight"].T).view(len(keys_in), -1, dim)
        v = (keys_in @ self.w[name + "v_proj.weight"].T).view(len(keys_in), -1, dim)
        q = rotate(rms(q, self.w[name + "q_norm.weight"], self.eps), positions[anchor:], self.theta)
        k = rotate(rms(k, self.w[name + "k_norm.weight"], self.eps), positions, self.theta)
        group = heads // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / dim**0.5 + self._mask(layer, anchor)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        return mixed.reshape(self.block, -1) @ self.w[name + "o_proj.weight"].T

    def hidden(self, anchor_token: int, context: Tensor) -> Tensor:
        """Final-norm states of one block; ``context`` holds the positions before the anchor."""
        tokens = torch.full((self.block,), self.config["mask_token_id"])
        tokens[0] = anchor_token
        x = self.embed[tokens]
        for i in range(self.decoder["num_hidden_layers"]):
            name = f"layers.{i}."
            y = rms(x, self.w[name + "input_layernorm.weight"], self.eps)
            x = x + self._attend(i, y, context)
            y = rms(x, self.w[name + "post_attention_layernorm.weight"], self.eps)
            up = y @ self.w[name + "mlp.up_proj.weight"].T
            gate = torch.nn.functional.silu(y @ self.w[name + "mlp.gate_proj.weight"].T)
            x = x + (gate * up) @ self.w[name + "mlp.down_proj.weight"].T
        return rms(x, self.w["norm.weight"], self.eps)

    def bias(self, h: Tensor, prev: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The Markov bias of one slot and the recurrent state after it."""
        if not self.config["markov_rank"]:
            return torch.zeros(len(self.head)), state
        m = "markov_head."
        e, kind = self.w[m + "markov_w1.weight"][prev], self.config["markov_head_type"]
        if kind == "gated":
            z = self.w[m + "gate_proj.weight"] @ torch.cat([h, e]) + self.w[m + "gate_proj.bias"]
            e = z.sigmoid() * e
        elif kind == "rnn":
            z = self.w[m + "joint_proj.weight"] @ torch.cat([state, e, h])
            gate, cand, out = (z + self.w[m + "joint_proj.bias"]).chunk(3)
            state = gate.sigmoid() * state + (1 - gate.sigmoid()) * cand.tanh()
            e = out.tanh()
        return self.w[m + "markov_w2.weight"] @ e, state

    def logits(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Teacher-forced logits of one block, Markov bias included."""
        state, rows = torch.zeros(self.config["markov_rank"]), []
        for h, prev in zip(hidden, previous, strict=True):
            bias, state = self.bias(h, prev, state)
            rows.append(self.head @ h + bias)
        return torch.stack(rows)

    def propose(self, anchor_token: int, context: Tensor) -> list[int]:
        """Greedy draft tokens, in target ids, of one block."""
        hidden, state = self.hidden(anchor_token, context), torch.zeros(self.config["markov_rank"])
        previous, drafted = anchor_token, []
        for slot, h in enumerate(hidden):
            bias, state = self.bias(h, torch.tensor(previous), state)
            if slot == 0 and not self.anchor_first:
                continue
            best = int((self.head @ h + bias).argmax())
            previous = best + int(self.d2t[best])
            drafted.append(previous)
        return drafted
