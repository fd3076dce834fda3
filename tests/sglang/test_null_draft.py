"""Null drafts on whole stock servers, without the plugin and with it: nothing is accepted, and the output is plain greedy.

Float32 on the CPU, so outputs are compared token for token with the fixtures. One anchor layout a server: the bonus one
comes from the draft with a recurrent head and a reduced vocabulary, the sampled one from a gated head.
"""

import json
from pathlib import Path

import pytest
from sglang_harness.environment import PYTHON, TRAINED, Site
from sglang_harness.server import serve

from speculators_convert import api
from speculators_convert.smoke.null_draft import write_null_draft

pytestmark = [pytest.mark.sglang, pytest.mark.skipif(not PYTHON.exists(), reason=f"no SGLang environment at {PYTHON}: run tools/sglang_env.sh")]
PROMPTS = [json.loads(line) for line in (TRAINED / "prompts.jsonl").read_text().splitlines()]
STOCK, PLUGIN = "cpu_stand_in", "speculators_dspark,cpu_stand_in"
CASES = [("tiny-sliding-noncausal", STOCK, False), ("tiny-anchor-reduced-gated", PLUGIN, True)]


@pytest.mark.parametrize(("name", "plugins", "sampled"), CASES, ids=["bonus, stock", "sampled, with the plugin"])
def test_nothing_is_accepted_and_the_output_is_the_fixtures(name: str, plugins: str, sampled: bool, site: Site, tmp_path: Path) -> None:
    looked = api.look(str(TRAINED / name))
    null = write_null_draft(looked.spec, looked.source, TRAINED / "tiny-target", tmp_path / "null")
    with serve(site, null, tmp_path / "log", plugins=plugins) as server:
        answers = server.generate([item["input_ids"] for item in PROMPTS])
        log = server.log.read_text(errors="replace")
    assert [item.output_ids for item in answers] == [item["greedy_output_ids_float32"] for item in PROMPTS]
    assert [item.accepted for item in answers] == [0] * len(PROMPTS)
    assert [item.verify_steps for item in answers] == [len(item.output_ids) - 1 for item in answers], "each token but the first is the bonus of one verification"
    line = next(line for line in log.splitlines() if "Initialized DSpark draft runner" in line)
    for part in ("model=Qwen3DSparkModel", "gamma=6", "verify_num_draft_tokens=7", f"query_token_num={6 if sampled else 7}", f"sample_from_anchor={sampled}"):
        assert part in line
