"""The config object that SGLang gets for a Speculators draft: the native layout's keys, nothing of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Qwen3Config

from speculators_convert.layouts.native_config import native_config
from speculators_convert.sglang_plugin import ARCHITECTURE
from speculators_convert.spec import DraftSpec, known

_SERVED_DTYPES = ("bfloat16", "float16")


def native_object(spec: DraftSpec, folder: Path) -> Any:
    """A `Qwen3Config`, with two numbers said as SGLang counts them.

    A draft stored in float32 is served in bfloat16: SGLang would choose float16 for it. A window of w context tokens is
    w + 1 in SGLang, which counts the query itself (`get_dflash_attention_sliding_window_size`).
    """
    fields = native_config(spec, architecture=ARCHITECTURE, draft_vocab_size=known(spec.draft_vocab_size, "draft_vocab_size"))
    if fields["dtype"] not in _SERVED_DTYPES:
        fields["dtype"] = "bfloat16"
    if fields["sliding_window"] is not None:
        fields["sliding_window"] += 1
    fields.pop("model_type")
    config = Qwen3Config(**fields)
    config._name_or_path = str(folder)
    return config
