"""Policies: `default` and `publish` ship with the tool, any other is a JSON file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from speculators_convert.container import strict_json
from speculators_convert.errors import SourceError, UsageError
from speculators_convert.policies.policy import EngineRule, EvidenceRule, GatePolicy, Waiver
from speculators_convert.sources.bounded import read_bounded

__all__ = ["BUILT_IN", "EngineRule", "EvidenceRule", "GatePolicy", "Waiver", "load_policy", "parse_policy"]

BUILT_IN = ("default", "publish")
MAX_POLICY_BYTES = 1024 * 1024


def load_policy(name: str) -> GatePolicy:
    """The built-in policy of that name, or the one in that file."""
    if name in BUILT_IN:
        return parse_policy(files(__name__).joinpath(f"{name}.json").read_bytes(), name)
    path = Path(name)
    try:
        data = read_bounded(path, MAX_POLICY_BYTES)
    except OSError as error:
        raise SourceError(
            f"cannot read the policy ({error.strerror})", where=name, expected=f"{', '.join(BUILT_IN)} or a JSON file", hint="pass --policy publish, or the path of a policy file"
        ) from error
    return parse_policy(data, name)


def parse_policy(data: bytes, where: str) -> GatePolicy:
    """The policy in a JSON text; `UsageError` names the first key that is wrong."""
    try:
        document = strict_json.loads(data)
    except ValueError as error:
        raise UsageError("the policy is not JSON", where=where, measured=str(error)[:200], expected="a JSON object") from error
    if isinstance(document, dict):
        document.pop("$schema", None)  # editors use it; it is no part of the policy
    try:
        return GatePolicy.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        pointer = "".join(f"/{part}" for part in first["loc"])
        known = f"one of {', '.join(sorted(GatePolicy.model_fields))}" if first["type"] == "extra_forbidden" and len(first["loc"]) == 1 else first["msg"]
        raise UsageError(
            "the policy does not follow its schema", where=f"{where}#{pointer}", measured=repr(first["input"])[:200], expected=known, hint="see schemas/policy.schema.json"
        ) from error
