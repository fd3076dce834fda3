"""The native layout of deepseek-ai/DeepSpec: flat config, copies of the target's embedding and head.

Its tensors are those of the Speculators layout plus the two copies; each draft key stands at the top level, where DeepSpec
writes it, and in the nested tables that engines read first.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.layouts.assemble import Draft, assemble
from speculators_convert.layouts.base import Options
from speculators_convert.layouts.borrowed import BORROWED, borrowed
from speculators_convert.layouts.native_config import native_config
from speculators_convert.layouts.parts import copied, dropped
from speculators_convert.layouts.refusals import NO_MAPPING, TABLE_ROLES, demand_full_vocabulary, demand_portable
from speculators_convert.rewrite.plan import RewritePlan
from speculators_convert.spec import Anchor, DraftSpec


class DeepSpecLayout:
    """Flat config, both spellings of each key, embedding and head in the file."""

    name = "deepspec"
    title = "DeepSpec native (deepseek-ai/DeepSpec)"
    compares_heads = False

    def plan(self, spec: DraftSpec, checkpoint: Checkpoint, options: Options) -> RewritePlan:
        """Copy each role; borrow what the draft does not have."""
        demand_portable(spec, checkpoint, options.tables)
        demand_full_vocabulary(spec, self.title)
        pairing = options.pairing
        parts = [copied(role, ref) for role, ref in spec.tensors.items() if role not in TABLE_ROLES]
        unused = [dropped(ref, NO_MAPPING) for role, ref in spec.tensors.items() if role in TABLE_ROLES]
        parts += [borrowed(spec, role, pairing) for role in BORROWED if role not in spec.tensors]
        depth = spec.num_target_layers or (pairing.num_hidden_layers if pairing else None)
        config = native_config(spec.model_copy(update={"num_target_layers": depth}))
        return assemble(
            Draft(self.name, config, parts, unused, list(_notes(spec)), tp=options.tp, copy_code=options.copy_code), spec, checkpoint, target=pairing.target if pairing else None
        )


def _notes(spec: DraftSpec) -> Iterator[str]:
    if spec.anchor is Anchor.BONUS:
        yield "the anchor's slot is not sampled: engines read that from sample_from_anchor, DeepSpec's own code does not know the key"


LAYOUT = DeepSpecLayout()
