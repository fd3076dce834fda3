"""Bad input is a finding and never a traceback: each key of each good config with each malformed value, and random edits of configs and headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.detection import FIXTURES, findings, good_fixtures
from benchmarks.draft_editor import Draft
from hypothesis import given
from hypothesis import strategies as st

from speculators_convert import checks, engines, geometry
from speculators_convert.checkpoint import collect
from speculators_convert.findings import Finding
from speculators_convert.formats import detect
from speculators_convert.sources import LocalSource, MemorySource
from speculators_convert.spec import Settings
from speculators_convert.target.pairing import collect_pairing
from speculators_convert.target.vocabulary import read_tables

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1.5, -0.5, 10**30, -(10**30), 1 << 31, 1 << 63, 1e308, "", "x", "12", "true", "\ud7ff" * 3, [], {}, [None], [[]], [1, "a"], [-1], [10**30], [1.5], [True],
    ["full_attention"], [{}], {"a": 1}, {"rope_theta": {}}, "n" * 10_000, [0] * 5000,
)  # fmt: skip
CONFIGS = [item for item in good_fixtures() if (item.folder / "config.json").exists()]
ALL = ["trained/tiny-bonus-reduced-vanilla", "library/0.9.0/sliding-noncausal", *[item.name for item in CONFIGS if item.name.startswith("good/")]]
ONE_OF_EACH = ["library/0.9.0/sliding-noncausal", *{item.name.split("-")[0]: item.name for item in CONFIGS if item.name.startswith("good/")}.values()]
"""One of each packaging; the slow run takes all."""


def everything(files: dict[str, bytes]) -> tuple[Finding, ...]:
    """All that `inspect` computes, with a target."""
    source = MemorySource(files)
    checkpoint = collect(source)
    detection = detect(checkpoint)
    reading = detection.format.read(checkpoint, Settings()) if detection.format else None
    tables = read_tables(checkpoint) if reading else None
    target = LocalSource(FIXTURES / "library/target")
    spec = reading.spec if reading else None
    pairing = collect_pairing(source, spec, tables, target, collect(target))
    found, skipped = checks.run(checks.Evidence(checkpoint, Settings(), (1, 2, 8), detection.format.name if detection.format else None, reading, spec, tables, pairing))
    if spec is not None:
        spec.model_dump_json()
        geometry.describe(spec)
        geometry.tensor_rows(spec)
        geometry.sizes(spec, (1, 2, 8))
        assert engines.verdicts(spec, checkpoint, "DRAFT", (1, 2), pairing=pairing)
    assert {item.code for item in found} | {item.code for item in skipped} <= set(checks.CHECKS)
    return found


def pointers(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from pointers(item, (*path, key))


def with_value(config: Any, path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(config))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def survives(name: str, step: int) -> int:
    """Puts every `step`-th malformed value into each key, another set for each key; how many checkpoints were looked at."""
    draft, count = Draft.load(FIXTURES / name), 0
    files = draft.files()
    for number, path in enumerate(pointers(draft.config)):
        for value in VALUES[number % step :: step]:
            everything({**files, "config.json": json.dumps(with_value(draft.config, path, value)).encode()})
            count += 1
    return count


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_malformed_values_of_each_key_are_survived(name: str) -> None:
    assert survives(name, len(VALUES)) > 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_each_malformed_value_of_each_key_is_survived(name: str) -> None:
    assert survives(name, 1) > 400


def test_malformed_targets_are_survived() -> None:
    draft = Draft.load(FIXTURES / "library/0.9.0/vanilla-anchor-reduced")
    target = Draft.load(FIXTURES / "library/target")
    for path in pointers(target.config):
        for value in VALUES[:: 6 if len(path) == 1 else 12]:
            changed = target.copy()
            changed.config = with_value(target.config, path, value)
            findings(draft, changed)
    for document in (b"[]", b"{", b"", b'{"text_config": []}', b'{"text_config": {"vocab_size": []}}'):
        held = MemorySource({"config.json": document, "tokenizer.json": document})
        source = MemorySource(draft.files())
        pairing = collect_pairing(source, None, None, held, collect(held))
        assert pairing.vocab_size is None


UNREAD = {
    "/speculators_config/algorithm",
    "/speculators_config/default_proposal_method",
    "/speculators_config/proposal_methods/0/accept_tolerance",
    "/speculators_config/proposal_methods/0/proposal_type",
    "/speculators_config/proposal_methods/0/verifier_accept_k",
    "/transformer_layer_config/attention_dropout",
    "/transformer_layer_config/bos_token_id",
    "/transformer_layer_config/eos_token_id",
    "/transformer_layer_config/pad_token_id",
    "/transformer_layer_config/initializer_range",
    "/transformer_layer_config/model_type",
    "/transformer_layer_config/tie_word_embeddings",
    "/transformer_layer_config/use_cache",
    "/transformer_layer_config/max_window_layers",
    "/transformers_version",
}
"""Keys that neither the reading nor an engine rule depends on."""


def test_a_value_of_a_wrong_type_is_found_for_each_key_that_is_read() -> None:
    """A list that holds an object fits no key: silence means that nobody reads the key."""
    draft = Draft.load(FIXTURES / "library/0.9.0/sliding-noncausal")
    before = {(item.code, item.message, item.measured) for item in findings(draft)}
    silent = set()
    for path in pointers(draft.config):
        changed = draft.copy()
        changed.config = with_value(draft.config, path, [{"a": 1}])
        if all((item.code, item.message, item.measured) in before for item in findings(changed)):
            silent.add("/" + "/".join(str(key) for key in path))
    assert silent == UNREAD


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
FLAT = LEAF | st.lists(LEAF, max_size=4) | st.dictionaries(st.text(max_size=6), LEAF, max_size=4)
JSON = FLAT | st.lists(FLAT, max_size=4) | st.dictionaries(st.text(max_size=6), FLAT, max_size=4)
BASES = [(FIXTURES / name, Draft.load(FIXTURES / name)) for name in ONE_OF_EACH]


@given(data=st.data(), base=st.sampled_from(BASES))
def test_random_configs_never_raise(data: st.DataObject, base: tuple[Any, Draft]) -> None:
    draft = base[1]
    config = json.loads(json.dumps(draft.config))
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(sorted(pointers(config), key=str)))
        action = data.draw(st.sampled_from(("set", "delete", "add")))
        place = config
        for key in path[:-1]:
            place = place[key]
        if action == "delete":
            del place[path[-1]]
        elif action == "add" and isinstance(place, dict):
            place[data.draw(st.sampled_from((*draft.config, "dflash_config", "dspark_config", "rope_scaling", "quantization_config", "text_config")))] = data.draw(JSON)
        else:
            place[path[-1]] = data.draw(JSON)
        if not config:
            break
    everything({**draft.files(), "config.json": json.dumps(config).encode()})


HEADERS = [Draft.load(FIXTURES / name) for name in ("library/0.9.0/vanilla-anchor-reduced", "good/deepspec-rnn", "good/modelopt-gated", "good/bundled-v4", "good/nemotron-nvfp4")]


@given(data=st.data(), draft=st.sampled_from(HEADERS))
def test_random_headers_never_raise(data: st.DataObject, draft: Draft) -> None:
    changed = draft.copy()
    entries = changed.first().entries
    for _ in range(data.draw(st.integers(1, 3))):
        entry = data.draw(st.sampled_from(entries))
        what = data.draw(st.sampled_from(("dtype", "shape", "name", "drop", "data", "key")))
        if what == "dtype":
            entry.dtype = data.draw(st.sampled_from(("BF16", "F32", "I64", "BOOL", "F8_E4M3", "U8", "F4", "nope")))
        elif what == "shape":
            entry.shape = data.draw(st.lists(st.integers(-1, 100) | st.just(1 << 62), max_size=4))
        elif what == "name":
            entry.name = data.draw(st.sampled_from([item.name for item in entries]) | st.text(max_size=12))
        elif what == "drop" and len(entries) > 1:
            entries.remove(entry)
        elif what == "data":
            entry.data = data.draw(st.binary(max_size=64))
        elif what == "key":
            entry.override[data.draw(st.sampled_from(("dtype", "shape", "data_offsets", "extra")))] = data.draw(JSON)
    everything(changed.files())


@given(data=st.data())
def test_random_tables_never_raise(data: st.DataObject) -> None:
    """Any integers in d2t and any bytes in t2d."""
    draft = HEADERS[0].copy()
    d2t, t2d = draft.entry("d2t"), draft.entry("t2d")
    numbers = data.draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 100), min_size=48, max_size=48))
    d2t.data = b"".join(item.to_bytes(8, "little", signed=True) for item in numbers)
    t2d.data = data.draw(st.binary(min_size=96, max_size=96))
    assert any(item.code.startswith("DSP1") for item in everything(draft.files()))
