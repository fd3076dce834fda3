"""The plugin's hold on the real package: targets, signatures, liveness, the config parser, the query width."""

import json
import shutil
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.speculative.dspark_components import dspark_draft, dspark_draft_sampler
from sglang.srt.speculative.dspark_components.dspark_config import parse_dspark_draft_config
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.hf_transformers.config import HfModelConfigParser
from sglang.srt.utils.hf_transformers_utils import get_config
from sglang_harness.environment import LIBRARY, ROOT, TRAINED

from speculators_convert.errors import RefusedError
from speculators_convert.sglang_plugin import ARCHITECTURE, hooks, parser, state, width
from speculators_convert.sglang_plugin.doctor import diagnose
from speculators_convert.sglang_plugin.model import SpeculatorsDSparkModel
from speculators_convert.sglang_plugin.state import PluginError

pytestmark = pytest.mark.usefixtures("world")
FIXTURES = ROOT / "fixtures"
LIBRARY_DRAFTS = sorted(path.parent for path in LIBRARY.glob("*/*/config.json"))


@pytest.mark.parametrize("hook", hooks.HOOKS, ids=lambda hook: hook.target.removeprefix("sglang.srt."))
def test_target_exists_with_the_expected_signature_and_the_hook_is_live(hook):
    assert hooks.signature_problem(hook) is None
    found = hooks.liveness(hook)
    assert (found.live, found.stale, found.problem) == (True, (), "")


def test_a_lost_hook_is_noticed(world):
    live = dspark_draft.draft_markov_block
    dspark_draft.draft_markov_block = live.__wrapped__
    try:
        with pytest.raises(PluginError, match=r"dspark_draft\.draft_markov_block: SGLang did not apply the hook"):
            hooks.require_live()
    finally:
        dspark_draft.draft_markov_block = live
    hooks.require_live()


def test_a_module_that_still_holds_the_original_is_noticed(world):
    live = dspark_draft_sampler.draft_markov_block
    dspark_draft_sampler.draft_markov_block = live.__wrapped__
    try:
        with pytest.raises(PluginError, match=r"still called by sglang\.srt\.speculative\.dspark_components\.dspark_draft_sampler\.draft_markov_block"):
            hooks.require_live()
    finally:
        dspark_draft_sampler.draft_markov_block = live


def test_a_draft_is_not_built_without_its_hooks(world):
    """What each scheduler process does, whatever its parent saw."""
    live = dspark_draft.draft_markov_block
    dspark_draft.draft_markov_block = live.__wrapped__
    try:
        with pytest.raises(PluginError, match="not in force"):
            SpeculatorsDSparkModel(get_config(str(TRAINED / "tiny-anchor-full-vanilla"), trust_remote_code=False))
    finally:
        dspark_draft.draft_markov_block = live


def test_another_signature_is_noticed():
    hook = hooks.HOOKS[0]
    other = hooks.Hook(hook.target, hook.kind, hook.function, ("arguments",), hook.purpose)
    assert hooks.signature_problem(other) == "sglang.srt.arg_groups.speculative_hook._handle_dspark takes (server_args), expected (arguments)"


def test_parser_refuses_while_the_plugin_is_unsound(world, tmp_path):
    kept, state.problem = state.problem, "a reason"
    try:
        with pytest.raises(PluginError, match="a reason"):
            parser.SpeculatorsConfigParser().parse(str(TRAINED / "tiny-anchor-full-vanilla"), trust_remote_code=False)
        assert parser.SpeculatorsConfigParser().parse(str(TRAINED / "tiny-target"), trust_remote_code=False).model_type == "qwen3"
    finally:
        state.problem = kept


@pytest.mark.parametrize("folder", LIBRARY_DRAFTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_sglang_reads_each_library_draft(folder: Path):
    """Through `get_config` and `ModelConfig`, against the Speculators config itself."""
    stated = json.loads((folder / "config.json").read_text())
    if folder.name.startswith("no-markov") or folder.name == "taps-edge":
        with pytest.raises(RefusedError, match="Markov head" if "markov" in folder.name else "embeddings"):
            get_config(str(folder), trust_remote_code=False)
        return
    config = get_config(str(folder), trust_remote_code=False)
    model = ModelConfig(model_path=str(folder), is_draft_model=True, context_length=128)
    gamma = stated["block_size"] - (0 if stated["sample_from_anchor"] else 1)
    read = parse_dspark_draft_config(draft_hf_config=config)
    assert (read.gamma, read.target_layer_ids, read.mask_token_id) == (gamma, [item - 1 for item in stated["aux_hidden_state_layer_ids"]], stated["mask_token_id"])
    assert (read.markov_rank, read.markov_head_type) == (stated["markov_rank"], stated["markov_head_type"])
    assert stated["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == gamma
    assert (config.architectures, config.sample_from_anchor, config.draft_vocab_size) == ([ARCHITECTURE], stated["sample_from_anchor"], stated["draft_vocab_size"])
    assert (str(model.dtype), model.vocab_size) == ("torch.bfloat16", stated["transformer_layer_config"]["vocab_size"])


@pytest.mark.parametrize("name", ["trained/tiny-target", "good/deepspec-vanilla", "good/speculators-dflash-0.6", "good/bundled-v4"])
def test_models_of_others_pass_through_untouched(name):
    """A target, a native draft, a Speculators draft of another algorithm, a target that holds its draft: the same config, or the same error."""
    ours, stock = (_parsed(kind(), FIXTURES / name) for kind in (parser.SpeculatorsConfigParser, HfModelConfigParser))
    assert ours == stock


def _parsed(reader, folder):
    try:
        config = reader.parse(str(folder), trust_remote_code=False)
    except (ValueError, KeyError) as error:
        return type(error), str(error)
    return type(config), config.to_dict()


def test_code_of_a_checkpoint_is_not_run(tmp_path):
    """Not even where the user trusts code: the config names a file of the checkpoint, and that file leaves a mark when it is imported."""
    shutil.copytree(TRAINED / "tiny-bonus-reduced-vanilla", tmp_path / "draft")
    path, mark = tmp_path / "draft/config.json", tmp_path / "imported"
    names = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": names}))
    (tmp_path / "draft/evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass EvilConfig: pass\nclass EvilModel: pass\n")
    config = get_config(str(tmp_path / "draft"), trust_remote_code=True)
    assert config.architectures == [ARCHITECTURE]
    assert not mark.exists()


@pytest.mark.parametrize(("draft", "rows"), [("tiny-anchor-full-vanilla", 6), ("tiny-bonus-reduced-vanilla", 7)])
def test_query_rows_of_the_flash_attention_back_end(draft, rows):
    """SGLang leaves gamma; the runner's own rule, called here on a stand-in for `self`, knows the anchor layout."""
    runner = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=get_config(str(TRAINED / draft), trust_remote_code=False)), is_draft_worker=True, spec_algorithm=SpeculativeAlgorithm.DSPARK
    )
    runner.decode_num_tokens_per_req = lambda: ModelRunner.decode_num_tokens_per_req(runner, num_draft_tokens=7)
    backend = SimpleNamespace(speculative_num_draft_tokens=6)
    width.set_query_rows(None, backend, runner, fa_impl_ver=3)
    assert backend.speculative_num_draft_tokens == rows
    other = SimpleNamespace(speculative_num_draft_tokens=6)
    runner.model_config.hf_config = SimpleNamespace(architectures=["Qwen3DSparkModel"], sample_from_anchor=False)
    width.set_query_rows(None, other, model_runner=runner)
    assert other.speculative_num_draft_tokens == 6


def test_doctor_reports_the_environment(world):
    found = diagnose()
    assert found.problems == ()
    assert found.parser_live
    assert [item.target for item in found.hooks if not item.live] == []
    assert found.versions["sglang"] == found.tested_sglang == "0.5.23"
    assert {item.name for item in found.plugins if item.selected} == {"speculators_dspark", "cpu_stand_in"}
    ours = next(item for item in found.plugins if item.name == "speculators_dspark")
    assert (ours.value, ours.distribution) == ("speculators_convert.sglang_plugin:register", "speculators-convert")
    assert found.nccl == metadata.version("nvidia-nccl-cu13")
    assert found.cuda == torch.version.cuda
    assert len(found.devices) == torch.cuda.device_count()


def test_doctor_names_what_is_wrong(world, monkeypatch):
    """Switched off, no GPU, another release, a lost hook: each is a problem of its own."""
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE")
    live = dspark_draft.draft_markov_block
    dspark_draft.draft_markov_block = live.__wrapped__
    try:
        found = diagnose()
    finally:
        dspark_draft.draft_markov_block = live
    assert [item.selected for item in found.plugins if item.name == "speculators_dspark"] == [False]
    assert found.problems[0] == "SGLANG_PLUGINS leaves out speculators_dspark"
    assert "sglang.srt.speculative.dspark_components.dspark_draft.draft_markov_block: SGLang did not apply the hook" in found.problems
    assert "no CUDA device can be used, and SGLang serves DSPARK on a GPU only" in found.problems
