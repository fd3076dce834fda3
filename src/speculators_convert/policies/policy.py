"""The policy as data: what a checkpoint, its evidence and its receipt must satisfy."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from speculators_convert.model import Model, Severity

Degree = Annotated[int, Field(ge=1)]


class Waiver(Model):
    """An accepted finding or skipped check: it needs a reason and an end."""

    code: str = Field(pattern=r"^DSP[0-9]{3}$")
    subject: str = Field(default="", description="Only findings about this subject; empty covers each")
    reason: str = Field(min_length=10)
    expires: date = Field(description="Last day on which the waiver holds")


class EngineRule(Model):
    """An engine that must read the checkpoint."""

    engine: str = Field(min_length=1)
    version: str | None = Field(default=None, description="Exactly this version; without it each version that the tool knows of")
    verdicts: tuple[Literal["loads", "needs-normalize"], ...] = Field(default=("loads",), min_length=1, description="Verdicts that satisfy the rule")


class EvidenceRule(Model):
    """What smoke results must show. Evidence that is passed is judged by these numbers also when it is not required."""

    required: bool = False
    engines: tuple[str, ...] = Field(default=(), description="Engines that must each have run the checkpoint; empty: any one")
    tp_degrees: tuple[Degree, ...] = Field(default=(), description="TP degrees that must each have run; empty: any one")
    modes: tuple[str, ...] = Field(default=(), description="Modes that must each have run; empty: any one")
    min_acceptance_length: float | None = Field(default=None, ge=1)
    min_prompts: int = Field(default=1, ge=1)
    equivalence: Literal["exact", "ties", "any"] = Field(
        default="ties",
        description="Drafted greedy output against the target's own: exact; or equal up to ties, where the target's two logits differ by rounding only; any: not judged",
    )
    max_age_days: int | None = Field(default=None, ge=0, description="Evidence must state when it was made, and not be older")
    tool: Literal["same-minor", "any"] = Field(default="same-minor", description="Which tool versions may have made the evidence")


class GatePolicy(Model):
    """Thresholds and requirements of the gate."""

    schema_version: Literal["1"] = "1"
    name: str = Field(min_length=1)
    description: str = ""
    fail_on: Severity = Field(default=Severity.ERROR, description="Lowest severity that fails")
    target: Literal["required", "optional"] = Field(
        default="optional", description="Whether the target must be there to compare with; optional: checks that need it may be skipped"
    )
    tp_degrees: tuple[Degree, ...] = Field(default=(), description="TP degrees that the checks run for")
    engines: tuple[EngineRule, ...] = ()
    evidence: EvidenceRule = EvidenceRule()
    receipt: Literal["required", "if-present"] = Field(default="if-present", description="if-present: a receipt in the folder must hold, none is accepted")
    waivers: tuple[Waiver, ...] = ()
