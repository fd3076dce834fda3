"""The model-card section that the tool writes: geometry, engines with their commands, measured acceptance. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.errors import RefusedError
from speculators_convert.findings import EngineVerdict
from speculators_convert.gate.verdict import GateReport
from speculators_convert.report.markdown import cell

BEGIN, END = "<!-- spec-convert:begin -->", "<!-- spec-convert:end -->"


def section(gate: GateReport, repository: str = "THIS_REPO") -> str:
    """The section with its markers, its commands for `repository`; `RefusedError` for a checkpoint that did not pass, so that no card claims what was not shown."""
    report = gate.report
    if gate.outcome != "pass" or report is None:
        raise RefusedError(
            "the model card was not written: the gate did not pass", where=gate.reference, measured=gate.outcome, expected="pass", hint="fix the reasons above, then run it again"
        )
    name = report.source.name
    lines = [BEGIN, "## Draft", "", *(f"- {cell(line)}" for line in report.geometry), *_size(gate), "", *_acceptance(gate)]
    for engine in report.engines:
        lines += _engine(engine, name, repository)
    lines += [f"Checked with spec-convert {gate.tool_version}, policy {cell(gate.policy)}" + (f"; sha256 of config and weights: `{gate.digest}`." if gate.digest else "."), END]
    return "\n".join(lines) + "\n"


def splice(card: str, text: str) -> str:
    """`card` with the section in place of the old one, or at its end. Everything outside the markers stays byte for byte."""
    if fault := marker_fault(card):
        raise RefusedError(fault, where="README.md", hint="leave one pair of markers, or none")
    if BEGIN not in card:
        gap = "" if not card else "\n" if card.endswith("\n") else "\n\n"
        return f"{card}{gap}{text}"
    head, _, rest = card.partition(BEGIN)
    return head + text.rstrip("\n") + rest.partition(END)[2]


def marker_fault(card: str) -> str:
    """Why the markers in a card cannot be used; empty when there is one pair in order, or none."""
    begins, ends = card.count(BEGIN), card.count(END)
    if (begins, ends) == (0, 0) or ((begins, ends) == (1, 1) and card.index(BEGIN) < card.index(END)):
        return ""
    return f"the markers of the generated section are not one pair: {begins} begin, {ends} end"


def _size(gate: GateReport) -> Iterator[str]:
    if gate.report and gate.report.size:
        yield f"- {gate.report.size.tensor_bytes:,} bytes of tensors; {gate.report.size.read_per_block_bytes:,} read per drafted block"


def _acceptance(gate: GateReport) -> Iterator[str]:
    if not gate.acceptance:
        yield from ("Acceptance was not measured.", "")
        return
    yield from ("| Engine | Mode | TP | Acceptance length | Output equals target-only greedy |", "|---|---|---|---|---|")
    for item in gate.acceptance:
        yield f"| {cell(item.engine)} | {cell(item.mode)} | {item.tp} | {item.acceptance_length:.2f} | {item.exact} of {item.total} prompts |"
    yield ""


def _engine(engine: EngineVerdict, name: str, repository: str) -> Iterator[str]:
    """One engine; commands name the repository, never a path of the machine that wrote the card."""
    yield f"**{cell(engine.engine)} {cell(engine.version)}**: {engine.verdict}"
    yield ""
    if engine.launch and engine.verdict in ("loads", "needs-normalize"):
        yield from ("```sh", *(line.replace(name, repository) for line in engine.launch.splitlines()), "```", "")
