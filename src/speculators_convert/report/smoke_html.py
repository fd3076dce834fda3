"""A smoke result as one HTML page. The page is made from the result alone, so that it can be made again from its JSON."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from speculators_convert.geometry import human_bytes
from speculators_convert.model import JsonValue
from speculators_convert.report import svg
from speculators_convert.report.block_svg import STYLE as BLOCK_STYLE
from speculators_convert.report.block_svg import block_drawing, block_sentence
from speculators_convert.report.html import NOTHING, Column, Markup, code, element, facts, join, page, section, table, text
from speculators_convert.report.smoke_modes import acceptance
from speculators_convert.report.smoke_outcomes import equivalence, holds, prompts
from speculators_convert.results.smoke import Block, CheckpointDigest, Comparison, ServerRecord, SmokeResult

_VERDICTS = {"pass": ("Pass", "\N{CHECK MARK}", "good"), "fail": ("Fail", "\N{BALLOT X}", "bad"), "not-run": ("Not run", "\N{EM DASH}", "open")}
"""Word, sign and colour."""


def smoke_html(result: SmokeResult) -> str:
    """The page: verdict and reasons first, then what was claimed, drawn, measured and run."""
    parts = {
        ("claims", "Claims"): _claims(result.comparisons),
        ("block", "Draft block"): _block(result.geometry),
        ("acceptance", "Acceptance"): acceptance(result.modes),
        ("equivalence", "Equivalence"): equivalence(result),
        ("prompts", "Prompts"): prompts(result),
        ("servers", "Servers"): _servers(result.servers),
        ("run", "Environment and parameters"): _run(result),
        ("checkpoints", "Checkpoint digests"): join(_checkpoints(result)),
    }
    links = element("nav", element("ul", *(element("li", element("a", title, href=f"#{anchor}")) for anchor, title in parts)), aria_label="Sections")
    body = (_header(result), links, *(section(anchor, title, content) for (anchor, title), content in parts.items()))
    return page(f"{_VERDICTS[result.verdict][0]}: smoke of {result.checkpoint.reference}", body, style=svg.STYLE + BLOCK_STYLE)


def _header(result: SmokeResult) -> Markup:
    word, sign, kind = _VERDICTS[result.verdict]
    reasons = (element("li", text(reason, lines=True)) for reason in result.reasons)
    verdict = element("div", element("h1", f"{sign} {word}"), element("ul", *reasons) if result.reasons else "", class_=f"verdict {kind}")
    target = _named(result.target) if result.target else NOTHING
    who = facts(
        (("Draft", _named(result.checkpoint)), ("Target", target), ("Engine", f"{result.engine} ({result.engine_reason})"), ("Made by", f"spec-convert {result.tool_version}"))
    )
    return element("header", element("p", "Smoke report", class_="note"), verdict, who)


def _named(item: CheckpointDigest) -> Markup:
    return join((code(item.reference), element("br"), element("span", f"sha256:{item.digest[:16]}", class_="note")))


def _claims(comparisons: Sequence[Comparison]) -> Markup:
    if not comparisons:
        return element("p", "Nothing was compared.")
    columns = (Column("Claim"), Column("Measured"), Column("Expected"), Column("Result"))
    return table(columns, ((item.name, item.measured, item.expected, holds(item.holds)) for item in comparisons), label="Claims", stacked=True)


def _block(block: Block | None) -> Markup:
    if block is None:
        return element("p", "This result does not say what its draft block looked like: an earlier version made it.")
    sentence = block_sentence(block) or "The file leaves the anchor or the number of draft tokens open."
    figure = element("figure", block_drawing(block), element("ul", *(element("li", fact) for fact in block.facts), class_="beside")) if block_sentence(block) else Markup()
    return join((element("p", sentence), figure or element("ul", *(element("li", fact) for fact in block.facts))))


def _servers(servers: Sequence[ServerRecord]) -> Markup:
    if not servers:
        return element("p", "No server was started.")
    columns = (Column("Server"), Column("Role"), Column("Start", numeric=True), Column("Asked", numeric=True), Column("GPU memory", numeric=True), Column("Log"))
    rows = (
        (
            item.name,
            item.role,
            f"{item.start_seconds:.1f} s",
            f"{item.asked_seconds:.1f} s",
            NOTHING if item.memory_bytes is None else human_bytes(item.memory_bytes),
            code(item.log),
        )
        for item in servers
    )
    return join((table(columns, rows, label="Servers", stacked=True), *(_command(item) for item in servers)))


def _command(server: ServerRecord) -> Markup:
    set_for = (f"{name}={shlex.quote(value)}" for name, value in sorted(server.environment.items()))
    line = " ".join((*set_for, shlex.join(server.command)))
    return element("details", element("summary", "Command of ", element("strong", server.name)), element("pre", line))


def _run(result: SmokeResult) -> Markup:
    halves = (("Environment", result.environment), ("Parameters", result.parameters))
    return element("div", *(element("div", element("h3", title), _named_values(values)) for title, values in halves), class_="pair")


def _named_values(values: Mapping[str, JsonValue]) -> Markup:
    rows = tuple(_flat(values))
    return facts((_breakable(name), value) for name, value in rows) if rows else element("p", "None recorded.")


def _breakable(name: str) -> Markup:
    """A name that a line may end in after each underscore or dot."""
    return join(part if part not in "._" else join((part, element("wbr"))) for part in re.split(r"([._])", name) if part)


def _flat(values: Mapping[str, JsonValue], above: str = "") -> Iterator[tuple[str, object]]:
    """Names and values as people read them. Values of a group are named after it, and what a group leaves open is left out."""
    for name, value in sorted(values.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, (list, tuple)) and value:
            yield above + name, ", ".join(str(item) for item in value)
        elif value is not None and value not in ({}, [], ()):
            yield above + name, str(value).lower() if isinstance(value, bool) else value
        elif not above:
            yield name, NOTHING


def _checkpoints(result: SmokeResult) -> Iterator[Markup]:
    """The digest of each checkpoint and of each file."""
    for role, item in (("Draft", result.checkpoint), ("Target", result.target)):
        if item is None:
            yield element("p", f"{role}: none was read.")
            continue
        yield element("h3", f"{role}: ", code(item.reference))
        yield element("p", "SHA-256 ", code(item.digest), " over these files:")
        yield table(
            (Column("File"), Column("SHA-256")), ((code(path), code(digest)) for path, digest in sorted(item.files.items())), label=f"Files of the {role.lower()}", stacked=True
        )
