"""What the gate says: requirements with their reasons, one outcome, and the document that every reporter renders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from speculators_convert.findings import Finding, Report
from speculators_convert.model import Model

Outcome = Literal["pass", "fail", "unreadable"]


class Reason(Model):
    """One reason why a requirement is not met."""

    code: str = Field(pattern=r"^(GATE[0-9]{3}|DSP[0-9]{3}|E[0-9]{3})$")
    message: str
    measured: str = ""
    expected: str = ""
    hint: str = ""
    file: str = Field(default="", description="File of the checkpoint, or evidence file as it was passed")


class Requirement(Model):
    """One thing that the policy asks for; met when it has no reasons."""

    name: str
    title: str
    met: bool
    measured: str = ""
    reasons: tuple[Reason, ...] = ()


class Waived(Model):
    """A finding or a skipped check that a waiver covers."""

    code: str
    subject: str
    message: str
    reason: str
    expires: str
    file: str = ""
    pointer: str = ""


class Place(Model):
    """Where a finding stands: a line of a text file, or a byte range of a binary one."""

    file: str
    line: int | None = Field(default=None, ge=1)
    byte_offset: int | None = Field(default=None, ge=0)
    byte_length: int | None = Field(default=None, ge=0)


class Acceptance(Model):
    """One measured mode of accepted evidence."""

    engine: str
    mode: str
    tp: int
    acceptance_length: float
    exact: int
    total: int
    file: str


class GateReport(Model):
    """The gate's answer: `outcome` decides the exit status (pass 0, fail 1, unreadable 3)."""

    schema_version: Literal["1"] = "1"
    tool_version: str
    outcome: Outcome
    policy: str
    reference: str = Field(description="The checkpoint as it was passed")
    digest: str = Field(default="", description="Digest of the checkpoint's bytes, when evidence was compared with it")
    requirements: tuple[Requirement, ...]
    failing: tuple[Finding, ...] = Field(default=(), description="Findings at or above the policy's threshold that no waiver covers")
    waived: tuple[Waived, ...] = ()
    places: tuple[Place | None, ...] = Field(default=(), description="Where each finding of `report` stands, in the same order")
    acceptance: tuple[Acceptance, ...] = ()
    notes: tuple[str, ...] = ()
    report: Report | None = None

    def reasons(self) -> tuple[Reason, ...]:
        """All reasons of requirements that are not met."""
        return tuple(reason for requirement in self.requirements for reason in requirement.reasons)
