"""SGLang's real classes around one draft, in one process: model, attention back end, KV pool. Needs the SGLang environment."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.plugins import load_plugins
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.hf_transformers_utils import get_config

from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel


def start_world(target: Path, *, rank: int = 0, tp: int = 1, port: int = 0) -> None:
    """Plugins, arguments and process groups, as in a scheduler."""
    load_plugins()
    publish(ServerArgs(model_path=str(target), device="cpu", tp_size=tp, attention_backend="torch_native"), role="scheduler", ranks=SpawnRanks(world_rank=rank))
    parallel_state.init_distributed_environment(world_size=tp, rank=rank, local_rank=rank, backend="gloo", distributed_init_method=f"tcp://127.0.0.1:{port}")
    if tp > 1:
        parallel_state.set_custom_all_reduce(False)
    parallel_state.initialize_model_parallel(backend="gloo")


def load_draft(folder: Path, target: Path) -> SpeculatorsDSparkModel:
    """The plugin's model for `folder`, weights loaded by its own loader, the target's vocabulary modules attached.

    SGLang builds the confidence head outside the static verify mode only.
    """
    os.environ["SGLANG_RAGGED_VERIFY_MODE"] = "cap-accept"
    config = get_config(str(folder), trust_remote_code=False)
    model = SpeculatorsDSparkModel(config).eval()
    model.load_weights(item for file in sorted(folder.glob("model*.safetensors")) for item in load_file(file).items())
    weights = load_file(target / "model.safetensors")
    embedding = VocabParallelEmbedding(int(config.vocab_size), int(config.hidden_size))
    embedding.weight_loader(embedding.weight, weights["model.embed_tokens.weight"])
    head = ParallelLMHead(int(config.vocab_size), int(config.hidden_size))
    head.weight_loader(head.weight, weights["lm_head.weight"])
    model.attach_shared_modules(embed_tokens=embedding, lm_head=head)
    return model


@dataclass
class Attention:
    """One request's KV pool, its token table and the CPU attention back end over them."""

    pool: MHATokenToKVPool
    table: ReqToTokenPool
    backend: TorchNativeAttnBackend

    @classmethod
    def of(cls, model: SpeculatorsDSparkModel) -> "Attention":
        """For the layers of `model`."""
        attention = model.layers[0].self_attn
        window = model.get_attention_sliding_window_size() if model.config.use_sliding_window else None
        pool = MHATokenToKVPool(
            size=256, page_size=1, dtype=torch.float32, head_num=attention.num_kv_heads, head_dim=attention.head_dim,
            layer_num=len(model.layers), device="cpu", enable_memory_saver=False,
        )  # fmt: skip
        table = ReqToTokenPool(size=4, max_context_len=256, device="cpu", enable_memory_saver=False)
        return cls(pool, table, TorchNativeAttnBackend(SimpleNamespace(device="cpu", req_to_token_pool=table, token_to_kv_pool=pool, sliding_window_size=window)))


@torch.no_grad()
def block_hidden(model: SpeculatorsDSparkModel, context: torch.Tensor, anchor: int, position: int, mask: int) -> torch.Tensor:
    """Final states [slots, H] of the block whose anchor stands at `position`, after `context` [position, taps * H]."""
    attention = Attention.of(model)
    slots = model.gamma if model.sample_from_anchor else model.gamma + 1
    attention.table.req_to_token[0, : position + slots] = torch.arange(1, position + slots + 1, dtype=torch.int32)
    where = torch.arange(position)
    model.write_target_hidden_kv(target_hidden=context, pool=attention.pool, positions=where, cache_loc=where + 1)
    batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY, batch_size=1, input_ids=torch.tensor([anchor] + [mask] * (slots - 1)), req_pool_indices=torch.tensor([0]),
        seq_lens=torch.tensor([position]), seq_lens_sum=position + slots, out_cache_loc=torch.arange(position + 1, position + slots + 1),
        positions=torch.arange(position, position + slots),
    )  # fmt: skip
    attention.backend.init_forward_metadata(batch)
    with forward_context(ForwardContext(attn_backend=attention.backend)):
        return model(batch.input_ids, batch.positions, batch).hidden_states
