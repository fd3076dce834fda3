"""The table of attention back ends: what is chosen for whom, and that each entry's source says what the entry says."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from speculators_convert import api
from speculators_convert.errors import UsageError
from speculators_convert.serving import backends
from speculators_convert.serving.backends import Case, Place, accepted, admit, choose, problem
from speculators_convert.smoke import pair, proof
from speculators_convert.target.pairing import head_dim

SGLANG = Path(os.environ.get("SPEC_CONVERT_CACHE", "~/.cache/spec-convert")).expanduser() / "envs/sglang-0.5.23"
SHAPES = list(itertools.product((False, True), (False, True)))


@pytest.mark.parametrize(
    ("capability", "bonus", "plugin", "chosen"),
    [
        ("9.0", False, False, ("fa3", "fa3")),
        ("9.0", True, True, ("fa3", "fa3")),
        ("9.0", True, False, ("fa3", "triton")),
        ("90", True, False, ("fa3", "triton")),
        ("sm_90", True, False, ("fa3", "triton")),
        ("10.0", True, False, ("flashinfer", "flashinfer")),
        ("103", False, True, ("flashinfer", "flashinfer")),
        ("sm_100a", False, True, ("flashinfer", "flashinfer")),
        ("12.1", True, False, ("flashinfer", "flashinfer")),
        ("120", False, False, ("flashinfer", "flashinfer")),
        (None, True, False, ("torch_native", "torch_native")),
    ],
)
def test_choice(capability: str | None, bonus: bool, plugin: bool, chosen: tuple[str, str]) -> None:
    found = choose(capability, bonus_anchor=bonus, plugin_live=plugin)
    assert (found.target, found.draft) == chosen


@pytest.mark.parametrize(("plugin_live", "draft"), [(True, "triton"), (False, "fa3")])
def test_sliding_layers_get_triton_where_the_plugin_widens_their_window(plugin_live: bool, draft: str) -> None:
    assert choose("9.0", bonus_anchor=False, plugin_live=plugin_live, sliding=True).draft == draft


def test_a_bonus_anchor_without_the_plugin_says_why_it_is_not_fa3() -> None:
    found = choose("9.0", bonus_anchor=True, plugin_live=False)
    assert "not fa3: it counts gamma rows for a draft that has gamma + 1" in found.why
    assert "flashattention_backend.py:225" in found.why
    assert "not fa3" not in choose("9.0", bonus_anchor=True, plugin_live=True).why


@pytest.mark.parametrize("capability", ["10.0", "12.0"])
@pytest.mark.parametrize(
    ("draft", "target", "chosen"),
    [
        (32, 32, ("triton", "triton")),
        (80, 96, ("triton", "triton")),
        (32, 128, ("flashinfer", "triton")),
        (128, 32, ("triton", "flashinfer")),
        (128, 256, ("flashinfer", "flashinfer")),
        (None, None, ("flashinfer", "flashinfer")),
    ],
)
def test_flashinfer_is_for_heads_that_it_has_kernels_for(capability: str, draft: int | None, target: int | None, chosen: tuple[str, str]) -> None:
    found = choose(capability, bonus_anchor=False, plugin_live=True, head_dim=draft, target_head_dim=target)
    assert (found.target, found.draft) == chosen
    assert ("not flashinfer: its prefill kernels take no head_dim below 64" in found.why) == ("triton" in chosen)


@pytest.mark.parametrize("capability", ["10.0", "12.0"])
def test_the_pair_of_the_package_is_not_for_flashinfer(capability: str, tmp_path: Path) -> None:
    spec = api.look(str(pair.DRAFT)).spec
    found = proof.backends_for(spec, pair.TARGET, capability)
    assert (found.target, found.draft) == ("triton", "triton")
    config = json.loads((pair.TARGET / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "head_dim": 128}))
    wide = proof.backends_for(spec.model_copy(update={"head_dim": 128}), tmp_path, capability)
    assert (wide.target, wide.draft) == ("flashinfer", "flashinfer")


@pytest.mark.parametrize(
    ("config", "width"),
    [
        ({"head_dim": 128, "hidden_size": 1024, "num_attention_heads": 16}, 128),
        ({"hidden_size": 1024, "num_attention_heads": 16}, 64),
        ({"hidden_size": 8, "text_config": {"hidden_size": 1024, "num_attention_heads": 32, "head_dim": None}}, 32),
        ({"head_dim": 64, "kv_lora_rank": 512}, None),
        ({"hidden_size": 1024}, None),
    ],
)
def test_the_width_of_a_targets_head(config: dict[str, object], width: int | None) -> None:
    assert head_dim(config) == width


@pytest.mark.parametrize("capability", ["8.0", "8.9", "11.0", "13.0", "whatever"])
def test_an_unknown_device_gets_triton_and_a_note(capability: str) -> None:
    found = choose(capability, bonus_anchor=True, plugin_live=False)
    assert (found.target, found.draft) == ("triton", "triton")
    assert f"no entry for compute capability {capability}" in found.why
    assert accepted(capability, "draft") == ("triton",)


def test_blackwell_is_said_to_be_unproven() -> None:
    for capability in ("10.0", "12.0"):
        assert "Never run on such a device" in choose(capability, bonus_anchor=False, plugin_live=True).why


@pytest.mark.parametrize("capability", [None, "9.0", "10.0", "12.0"])
@pytest.mark.parametrize(("bonus", "plugin"), SHAPES)
def test_nothing_is_chosen_that_a_trap_is_set_for(capability: str | None, bonus: bool, plugin: bool) -> None:
    found, case = choose(capability, bonus_anchor=bonus, plugin_live=plugin), Case(bonus, plugin)
    assert found.target in accepted(capability, "target")
    assert found.draft in accepted(capability, "draft")
    assert problem(capability, "target", found.target, case) is None
    assert problem(capability, "draft", found.draft, case) is None


def test_no_target_back_end_without_ragged_graphs_is_chosen_for_them() -> None:
    chosen = {capability: choose(capability, bonus_anchor=True, plugin_live=True, ragged_graph=True).target for capability in ("9.0", "10.0", "12.0")}
    assert chosen == {"9.0": "fa3", "10.0": "trtllm_mha", "12.0": "trtllm_mha"}
    assert "FlashInfer" not in (problem("9.0", "target", "flashinfer", Case()) or "")
    assert "refuses ragged verification" in (problem("9.0", "target", "flashinfer", Case(ragged_graph=True)) or "")


@pytest.mark.parametrize(
    ("capability", "role", "name", "said"),
    [
        ("10.0", "target", "fa3", "asserts a compute capability of 8 or 9"),
        ("12.0", "draft", "fa3", "asserts a compute capability of 8 or 9"),
        ("9.0", "draft", "trtllm_mha", "flashinfer elsewhere in its place"),
        ("10.0", "draft", "fa4", "counts gamma rows"),
        ("9.0", "target", "fa3", None),
        ("9.0", "draft", "flashinfer", None),
    ],
)
def test_what_a_user_names_is_looked_up(capability: str, role: backends.Role, name: str, said: str | None) -> None:
    found = problem(capability, role, name, Case(bonus_anchor=True))
    assert (found is None) == (said is None)
    assert said is None or said in (found or "")


@pytest.mark.parametrize(
    ("capability", "role", "name", "case", "measured", "serving"),
    [
        ("10.0", "target", "fa3", Case(), "fa3 on sm_100", "flashinfer or triton or trtllm_mha or fa4"),
        ("12.0", "draft", "fa3", Case(bonus_anchor=True), "fa3 on sm_120", "flashinfer or triton"),
        ("9.0", "target", "flashinfer", Case(head_dim=32), "flashinfer on sm_90 with heads of 32", "fa3 or triton or trtllm_mha"),
        ("90", "draft", "flashinfer", Case(bonus_anchor=True, head_dim=96), "flashinfer on sm_90 with heads of 96", "triton"),
        ("unknown", "draft", "flashinfer", Case(head_dim=80), "flashinfer on unknown with heads of 80", "triton"),
        ("9.0", "target", "flashinfer", Case(ragged_graph=True), "flashinfer on sm_90", "fa3 or trtllm_mha"),
    ],
)
def test_what_cannot_serve_is_refused(capability: str, role: backends.Role, name: str, case: Case, measured: str, serving: str) -> None:
    with pytest.raises(UsageError, match=f"this attention back end cannot serve the {role}: .* \\(SGLang 0.5.23, .*py:[0-9]+\\)") as caught:
        admit(capability, role, name, case)
    error = caught.value
    assert (error.where, error.measured, error.expected) == ("--attention-backend" if role == "target" else "--draft-attention-backend", measured, serving)
    assert error.hint


@pytest.mark.parametrize(
    ("capability", "role", "name", "case", "said"),
    [
        ("9.0", "draft", "fa3", Case(bonus_anchor=True), "fa3: it counts gamma rows"),
        ("9.0", "draft", "fa3", Case(bonus_anchor=True, plugin_live=True), None),
        ("10.0", "draft", "fa4", Case(plugin_live=True, sliding=True), "fa4: early slots see up to gamma older tokens"),
        ("10.0", "draft", "trtllm_mha", Case(), "trtllm_mha: SGLang serves drafts whose layers are all sliding"),
        ("9.0", "target", "triton", Case(ragged_graph=True), "triton: it has no graph for ragged verification"),
        ("9.0", "target", "triton", Case(), None),
        ("9.0", "draft", "flashinfer", Case(bonus_anchor=True, head_dim=128), None),
        ("9.0", "target", "fa3", Case(bonus_anchor=True, sliding=True, plugin_live=True, head_dim=32), None),
    ],
)
def test_what_serves_worse_is_let_through_and_named(capability: str, role: backends.Role, name: str, case: Case, said: str | None) -> None:
    note = admit(capability, role, name, case)
    assert (note is None) == (said is None)
    assert (note or "").startswith(said or "")


@pytest.mark.parametrize(("capability", "device"), [("9.0", "sm_90"), ("10.0", "sm_100"), ("12.0", "sm_120"), (None, "none (CPU)"), ("8.0", "any other")])
def test_the_page_shows_the_table(capability: str | None, device: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "equivalence.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {device}"))
    _, _, target, draft, others, _ = (cell.strip() for cell in row.split("|"))
    found = choose(capability, bonus_anchor=False, plugin_live=False)
    assert (target, draft.partition(";")[0]) == (found.target, found.draft)
    named = {name for name in ("triton", "flashinfer", "fa3", "fa4", "trtllm_mha") if name in others}
    assert named | {target, draft.partition(";")[0]} == {*accepted(capability, "target"), *accepted(capability, "draft")}


def places() -> Iterator[Place]:
    """Each source of the table."""
    table = backends.table()
    for capability in table.capabilities.values():
        yield from (entry.source for entry in (*capability.target, *capability.draft))
    yield from (trap.source for trap in table.traps)


@pytest.mark.skipif(not SGLANG.exists(), reason=f"no SGLang at {SGLANG}: run tools/sglang_env.sh")
def test_each_source_stands_where_the_table_says() -> None:
    (root,) = SGLANG.glob("lib/python3*/site-packages/sglang/srt")
    for place in places():
        lines = (root / place.file).read_text(encoding="utf-8").splitlines()
        assert any(place.says in line for line in lines[place.first - 1 : place.last]), f"{place.file}:{place.first}-{place.last} does not say {place.says!r}"
