"""Codes of the gate's own reasons; `explain` shows them. A code is never renumbered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speculators_convert.gate.verdict import Reason


@dataclass(frozen=True, slots=True)
class GateCode:
    """What a reason means and what to do."""

    title: str
    hint: str


GATE_CODES: Mapping[str, GateCode] = {
    "GATE001": GateCode("The checkpoint can be read", "Correct the reference or the file's permissions; nothing was judged"),
    "GATE002": GateCode("The format is recognised", "Run inspect: it lists what was looked for"),
    "GATE003": GateCode("Each check ran", "Fix the finding that blocks the check, pass --target, or waive the check's code"),
    "GATE004": GateCode("The target was compared", "Pass --target with the model that the draft was trained for"),
    "GATE005": GateCode("The required TP degrees were checked", "Fix the findings on geometry, then run the gate again"),
    "GATE006": GateCode("The required engines read the checkpoint", "Run normalize with the layout that the engine reads"),
    "GATE010": GateCode("Required evidence is there", "Run spec-convert smoke --out FILE on these bytes and pass it with --evidence"),
    "GATE011": GateCode("Evidence can be read", "Pass the file that spec-convert smoke --out wrote, unchanged"),
    "GATE012": GateCode("Evidence is not stale", "Run spec-convert smoke again with this version of the tool"),
    "GATE013": GateCode("Evidence is about these bytes", "Run spec-convert smoke on this checkpoint and this target, and pass that result"),
    "GATE014": GateCode("The smoke run passed", "Read the reasons in the smoke result; do not publish the draft before they are gone"),
    "GATE015": GateCode("Drafted output equals the target's own", "Losslessness is broken: check layout, vocabulary map and engine version"),
    "GATE016": GateCode("Acceptance reaches the minimum", "Check the anchor layout, taps, vocabulary map, mask token and rope theta against the trainer"),
    "GATE017": GateCode("Evidence adds up", "The file was edited or is damaged: run spec-convert smoke again"),
    "GATE018": GateCode("Enough prompts ran", "Run spec-convert smoke with a prompt file of at least that many lines"),
    "GATE020": GateCode("The receipt is there", "Publish the folder as spec-convert normalize wrote it"),
    "GATE021": GateCode("The receipt holds", "Files changed after normalize: write the folder again"),
    "GATE030": GateCode("Nothing in the folder must stay behind", "Move the file out of the folder, or pass it to hf upload with --exclude"),
    "GATE031": GateCode("The model card is complete", "Add the missing key to the front matter of README.md"),
}


def reason(code: str, message: str, *, measured: object = "", expected: object = "", hint: str = "", file: str = "") -> Reason:
    """A reason with the hint of its code."""
    return Reason(code=code, message=message, measured=str(measured), expected=str(expected), hint=hint or GATE_CODES[code].hint, file=file)
