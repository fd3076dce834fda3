"""What a dead server's log says: how far it came, the first error that matters, the check that it corresponds to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LOG_BYTES = 64 * 1024 * 1024
_STAGES = (
    ("server_args=", "starting its processes"),
    ("Init torch distributed begin", "joining its ranks"),
    ("Load weight begin", "loading the target's weights"),
    ("KV Cache is allocated", "allocating the KV pool"),
    ("Memory pool end", "building the draft's runner"),
    ("CUDA graph begin", "capturing CUDA graphs"),
    ("Capture cuda graph begin", "capturing CUDA graphs"),
    ("The server is fired up", "answering requests"),
    ("Uvicorn running", "answering requests"),
)
"""Text of a log line, and what the server does after it; the last one in the log counts."""
_DRAFT_STAGE = "loading the draft's weights"
_EXCEPTION = re.compile(r"^(?:\[[^\]]*\] )?(?P<line>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout)\b.*|.*\bout of memory\b.*)$")
_USAGE = re.compile(r"^[\w. -]+: error: (?P<line>.*)$")
_NOISE = (
    "SystemExit", "KeyboardInterrupt", "ChildFailedError", "CancelledError", "EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError",
    "NewConnectionError", "ConnectionError", "ProcessExited",
)  # fmt: skip
_HARMLESS = "post-warmup freeze_gc failed"
"""Logged with a traceback by each server that is told to skip its warm-up."""
_SIGNS = re.compile(r"Subprocess \S+ \(pid=\d+\) crashed|Health check failed|Rank \d+ scheduler died|[Ww]atchdog .*timeout")
"""What SGLang logs when a process of its own is gone or silent; counts when no exception does."""
_CODE = re.compile(r"\bDSP\d{3}\b")
_KNOWN = (
    (r"requires mask_token_id|mask_token_id=.*outside|mask_token_id must be non-negative", "DSP220"),
    (r"could not resolve gamma|got gamma|gamma must be", "DSP208"),
    (r"requires markov_rank > 0|markov_rank must be|markov_rank=0", "DSP328"),
    (r"markov_head_type", "DSP329"),
    (r"unexpected (markov|confidence) weight", "DSP303"),
    (r"checkpoint is missing|Missing key", "DSP301"),
    (r"DFlash layer selection|target_layer_ids", "DSP210"),
    (r"size mismatch|shape mismatch|doesn't match|does not match the shape|must match the size of tensor|The size of tensor", "DSP302"),
    (r"HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader", "DSP003"),
)
"""Messages of SGLang 0.5.23 and of the libraries under it, and the check that finds their cause beforehand."""
_HINTS = (
    (r"out of memory", "free the GPU, or pass --server-arg=--mem-fraction-static=... and fewer tokens"),
    (r"[Aa]ddress already in use", "another program took the port: run again"),
    (
        r"is not (yet )?supported|does not recognize this architecture|not supported for now|no such architecture",
        "install the plugin beside SGLang (spec-convert doctor), or normalize --layout sglang",
    ),
)
_PORT = re.compile(r"[Aa]ddress already in use|EADDRINUSE")


@dataclass(frozen=True, slots=True)
class Failure:
    """`stage` is what the server was doing, `line` its first error, `code` the check of `inspect` that corresponds to it."""

    stage: str
    line: str
    code: str | None
    hint: str
    port_taken: bool


def read(log: Path, during: str | None = None) -> Failure:
    """The failure in `log`; `during` is the step in which a server that was up failed."""
    return find(_text(log), during)


def find(text: str, during: str | None = None) -> Failure:
    """The failure in the text of a log."""
    lines = text.splitlines()
    line = first_error(lines)
    stated = _CODE.search(line)
    code = stated.group() if stated else next((code for pattern, code in _KNOWN if re.search(pattern, line)), None)
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, line)), "read the log from its first error on")
    return Failure(during or stage(lines), line, code, hint, bool(_PORT.search(text)))


def stage(lines: list[str]) -> str:
    """What the last known line of a start-up log announces."""
    found, loads = "reading its command line", 0
    for line in lines:
        loads += "Load weight begin" in line
        for mark, name in _STAGES:
            if mark in line:
                found = _DRAFT_STAGE if name.startswith("loading") and loads > 1 else name
    return found


def first_error(lines: list[str]) -> str:
    """The first exception that is not a mere consequence of ending, else the first sign of a lost process; empty when the log has neither."""
    for line in _without_harmless(lines):
        match = _USAGE.match(line) or _EXCEPTION.match(line.strip())
        if match and not any(word in match["line"].split(":")[0] for word in _NOISE):
            return match["line"].strip()[:600]
    return next((line.rpartition("] ")[2].strip()[:600] for line in lines if _SIGNS.search(line)), "")


def _without_harmless(lines: list[str]) -> Iterator[str]:
    """Without tracebacks of what a server survives."""
    harmless = False
    for line in lines:
        if line.startswith("["):
            harmless = _HARMLESS in line
        if not harmless:
            yield line


def _text(log: Path) -> str:
    """The log, its middle left out when it is huge."""
    try:
        with log.open("rb") as file:
            head = file.read(MAX_LOG_BYTES)
            file.seek(max(MAX_LOG_BYTES, log.stat().st_size - MAX_LOG_BYTES))
            return (head + file.read(MAX_LOG_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
