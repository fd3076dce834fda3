"""Writes request, context length, anchor and draft tokens of each block to the file that DRAFT_RECORD names (first rank only)."""

import json
import os
from pathlib import Path


def _record(proposal, proposer, *, batch, **rest):
    """After `DraftBlockProposer.propose`, eager or replayed from the graph alike."""
    from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415

    path = os.environ.get("DRAFT_RECORD")
    if path and get_parallel().tp_rank == 0:
        anchors = proposal.draft_block_ids[:, 0].tolist()
        blocks = proposal.draft_block.draft_tokens.tolist()
        rows = zip([request.rid for request in batch.reqs], batch.seq_lens.tolist(), anchors, blocks, strict=True)
        with Path(path).open("a") as file:
            file.writelines(json.dumps({"request": rid, "context": context, "anchor": anchor, "drafted": drafted}) + "\n" for rid, context, anchor, drafted in rows)


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    HookRegistry.register("sglang.srt.speculative.dspark_components.dspark_draft.DraftBlockProposer.propose", _record, HookType.AFTER)
