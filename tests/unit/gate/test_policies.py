"""Policies are JSON with a schema; a wrong one is refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from speculators_convert.errors import SourceError, UsageError
from speculators_convert.policies import BUILT_IN, GatePolicy, load_policy, parse_policy

WAIVER = {"code": "DSP105", "reason": "agreed with the trainers", "expires": "2026-12-31"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_policies_follow_the_schema(name: str) -> None:
    policy = load_policy(name)
    jsonschema.validate(policy.model_dump(mode="json"), GatePolicy.model_json_schema(mode="serialization"))
    assert policy.name == name
    assert policy.waivers == ()


def test_publish_asks_for_evidence_and_target_and_default_does_not() -> None:
    publish, default = load_policy("publish"), load_policy("default")
    assert (publish.evidence.required, publish.target) == (True, "required")
    assert (default.evidence.required, default.target) == (False, "optional")


def test_a_policy_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"$schema": "policy.schema.json", "schema_version": "1", "name": "team", "waivers": [WAIVER]}))
    assert load_policy(str(path)).waivers[0].expires.isoformat() == "2026-12-31"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"fail_on": "fatal"}, "/fail_on"),
        ({"waivers": [{**WAIVER, "expires": "never"}]}, "/waivers/0/expires"),
        ({"waivers": [{"code": "DSP105", "expires": "2026-12-31"}]}, "/waivers/0/reason"),
        ({"waivers": [{"code": "DSP105", "reason": "agreed with the trainers"}]}, "/waivers/0/expires"),
        ({"waivers": [{**WAIVER, "reason": "ok"}]}, "/waivers/0/reason"),
        ({"waivers": [{**WAIVER, "code": "everything"}]}, "/waivers/0/code"),
        ({"evidence": {"min_acceptance_length": 0.5}}, "/evidence/min_acceptance_length"),
        ({"tp_degrees": [0]}, "/tp_degrees/0"),
        ({"engines": [{"engine": "vllm", "verdicts": ["unknown"]}]}, "/engines/0/verdicts/0"),
        ({"treshold": "error"}, "/treshold"),
        ({"schema_version": "2"}, "/schema_version"),
    ],
)
def test_a_wrong_policy_names_the_place(change: dict[str, object], pointer: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(json.dumps({"name": "team", **change}).encode(), "team.json")
    assert caught.value.where == f"team.json#{pointer}"


@pytest.mark.parametrize("data", [b"", b"[]", b"{'name': 1}", b'{"name":"a","name":"b"}'])
def test_what_is_no_policy_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse_policy(data, "team.json")


def test_an_absent_policy_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read the policy"):
        load_policy(str(tmp_path / "absent.json"))
