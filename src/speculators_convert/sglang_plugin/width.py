"""Query rows of the draft's FlashAttention back end.

SGLang 0.5.23 sets them to gamma for each DSpark draft (`FlashAttentionBackend.__init__`), while a bonus-anchor block has
gamma + 1 rows: the last row stays unattended, and with several requests the rows shift between them.
"""

from __future__ import annotations

from typing import Any

from speculators_convert.sglang_plugin import ARCHITECTURE


def set_query_rows(result: None, backend: Any, model_runner: Any, *_: Any, **__: Any) -> None:
    """Give the back end of one of our drafts the runner's own count, which knows the anchor layout."""
    del result
    ours = ARCHITECTURE in (getattr(model_runner.model_config.hf_config, "architectures", None) or ())
    if ours and model_runner.is_draft_worker and backend.speculative_num_draft_tokens is not None:
        backend.speculative_num_draft_tokens = int(model_runner.decode_num_tokens_per_req())
