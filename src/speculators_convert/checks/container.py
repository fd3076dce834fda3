"""DSP0xx: the files themselves. One code per kind of fault that `collect` notes, and one for an unrecognised format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculators_convert.checkpoint import Checkpoint, Fault
from speculators_convert.checks.core import check, docstring
from speculators_convert.findings import Problem
from speculators_convert.formats import FORMATS, detect
from speculators_convert.model import Severity

_COPY_AGAIN = "Copy or download the file again and compare its SHA-256 with the published one."
_SAVE_AGAIN = "Save the file again with the `safetensors` library."
_FORMAT = "safetensors README, section Format"
_LFS_LENGTH = int.from_bytes(b"version ", "little")


@dataclass(frozen=True, slots=True)
class _Rule:
    """Text of one fault kind."""

    code: str
    title: str
    checks: str
    why: str
    fix: str
    reported: str
    severity: Severity = Severity.ERROR


_RULES = {
    "too-short": _Rule(
        "DSP001",
        "The file is long enough to be a safetensors file",
        "The file has at least the 8 bytes that state the header's length.",
        "An empty or cut file is what an interrupted download leaves.",
        _COPY_AGAIN,
        _FORMAT,
    ),
    "header-too-large": _Rule(
        "DSP002",
        "The header length is within the format's limit",
        "The first 8 bytes state at most 100,000,000 bytes of header.",
        "A larger number means that the file is something else: most often a Git LFS pointer, whose first word is `version`, or a pickle with a changed name.",
        "Fetch the real file (`git lfs pull`, or download it again).",
        "huggingface/safetensors `MAX_HEADER_SIZE`; dyana#197 (header bombs)",
    ),
    "header-beyond-file": _Rule(
        "DSP003",
        "The header lies inside the file",
        "8 + the stated header length is not more than the file's size.",
        "The file was cut, or its first bytes were overwritten: no loader can open it.",
        _COPY_AGAIN,
        _FORMAT,
    ),
    "header-json": _Rule(
        "DSP004",
        "The header is a JSON object",
        "The header starts with `{`, is UTF-8, and parses as one JSON object without NaN or Infinity.",
        "A header that one parser accepts and another refuses loads in one engine only.",
        _SAVE_AGAIN,
        _FORMAT,
    ),
    "duplicate-key": _Rule(
        "DSP005",
        "No tensor name stands twice in a header",
        "Each key of the header's JSON is there once.",
        "Parsers keep the first or the last of two entries, so two programs load different weights from one file.",
        _SAVE_AGAIN,
        "safetensors README, section Format: duplicate keys are disallowed",
    ),
    "metadata-type": _Rule(
        "DSP006",
        "Header metadata maps strings to strings",
        "`__metadata__` is an object whose values are all strings.",
        "The reference implementation refuses the whole file otherwise.",
        'Write the metadata with string values, for example {"format": "pt"}.',
        "safetensors#549",
    ),
    "tensor-entry": _Rule(
        "DSP007",
        "Each tensor entry is complete and sane",
        "An entry has exactly dtype, shape and data_offsets; the dtype is known, all numbers are natural numbers of at most 63 bits.",
        "A loader that does not check this allocates or reads by wrong numbers.",
        _SAVE_AGAIN,
        "huggingface_hub#4725",
    ),
    "size-mismatch": _Rule(
        "DSP008",
        "Shape and dtype fill each tensor's byte range",
        "Number of elements times size of the dtype equals the length of the byte range.",
        "The tensor's rows are shifted or the file was edited by hand.",
        _SAVE_AGAIN,
        _FORMAT,
    ),
    "overlap": _Rule(
        "DSP009",
        "No two tensors share bytes",
        "Byte ranges, sorted, do not overlap.",
        "Shared bytes hide data from one reader and not from another.",
        _SAVE_AGAIN,
        "dyana#197 (overlapping ranges)",
    ),
    "hole": _Rule(
        "DSP010",
        "No bytes lie between tensors",
        "The ranges follow each other without a gap.",
        "The format does not allow holes; the reference implementation refuses the file.",
        _SAVE_AGAIN,
        _FORMAT,
    ),
    "truncated": _Rule(
        "DSP011",
        "The file holds all of its tensors",
        "The last tensor ends inside the file.",
        "The end of the file is missing: a broken download or a full disk.",
        _COPY_AGAIN,
        "huggingface_hub#4725",
    ),
    "trailing": _Rule(
        "DSP012",
        "Nothing follows the last tensor",
        "The last tensor ends where the file ends.",
        "Extra bytes make a file that is two things at once, and show that it was not written in one go.",
        _SAVE_AGAIN,
        _FORMAT,
    ),
    "config-missing": _Rule(
        "DSP020",
        "There is a config.json",
        "The folder has a `config.json`.",
        "Geometry, taps and mask token stand only there: without it no engine can load the draft.",
        "Copy `config.json` from where the draft was saved.",
        "sglang#40630",
    ),
    "document-json": _Rule(
        "DSP021",
        "JSON documents parse",
        "`config.json` and the other JSON files are UTF-8 JSON without duplicate keys, NaN or Infinity.",
        "Python's parser keeps the last of two equal keys and accepts NaN, others do not: the same file is then read in two ways.",
        "Correct the place that the message names.",
        "vime `diff_dspark_serving_config` (configs edited by hand)",
    ),
    "config-not-object": _Rule(
        "DSP022",
        "config.json is an object",
        "The top of `config.json` is a JSON object.",
        "No loader can read it.",
        "Replace it by the config that the trainer saved.",
        "sglang#40630",
    ),
    "document-too-large": _Rule(
        "DSP023",
        "JSON documents are of a sane size",
        "A JSON document is at most 32 MiB.",
        "A config of that size is not a config; reading it would only cost memory.",
        "Remove the file or restore the right one.",
        "dyana#197 (header bombs)",
    ),
    "refused-file": _Rule(
        "DSP024",
        "No file leads out of the folder",
        "No entry is a broken link or a link that leaves the checkpoint.",
        "A published checkpoint must not read other files of the machine that opens it.",
        "Copy the file into the folder if you trust it.",
        "modelscan#263",
    ),
    "gguf-invalid": _Rule(
        "DSP013",
        "The GGUF file is valid",
        "Magic, version, keys and tensor table of a `.gguf` file parse, and its tensors lie inside the file.",
        "llama.cpp refuses the file, or reads past its end.",
        "Convert the draft again with llama.cpp's `convert_hf_to_gguf.py`, or download the file again.",
        "llama.cpp#26337",
    ),
    "no-weights": _Rule(
        "DSP030",
        "There are weights",
        "The folder has at least one `.safetensors` file.",
        "Without weights an engine serves random numbers or stops.",
        "Copy the weights beside `config.json`; convert pickles with the trainer that made them.",
        "Edge-LLM#200",
    ),
    "index-invalid": _Rule(
        "DSP031",
        "The shard index can be used",
        "`model.safetensors.index.json` has a `weight_map` from tensor names to file names.",
        "Engines find shards only through it.",
        "Save the checkpoint again, or delete the index when there is one weight file only.",
        "huggingface_hub#4725",
    ),
    "index-missing-shard": _Rule(
        "DSP032",
        "Each shard of the index is there",
        "Each file that the index names exists.",
        "The tensors of that shard stay at their random start values, in some engines without a word.",
        "Download the missing shard.",
        "huggingface_hub#4725",
    ),
    "index-unlisted-file": _Rule(
        "DSP033",
        "Each weight file is in the index",
        "Each top-level `.safetensors` file is named by the index, when there is one.",
        "Engines that follow the index skip the file, those that take all files load it: two different drafts.",
        "Remove the file if it is a left-over, or add it to the index.",
        "huggingface_hub#4725",
        Severity.WARNING,
    ),
    "index-unlisted-tensor": _Rule(
        "DSP034",
        "Each tensor of a shard is in the index",
        "Each tensor in a shard's header stands in `weight_map`.",
        "Loaders that follow the index leave it out.",
        "Write the index again from the shard headers.",
        "huggingface_hub#4725",
    ),
    "index-wrong-shard": _Rule(
        "DSP035",
        "The index names the right shard",
        "Each tensor lies in the file that `weight_map` gives for it.",
        "Loaders that follow the index do not find it.",
        "Write the index again from the shard headers.",
        "huggingface_hub#4725",
    ),
    "duplicate-tensor": _Rule(
        "DSP036",
        "No tensor lies in two files",
        "A tensor name stands in one shard only.",
        "Which copy wins depends on the order in which a loader opens the files.",
        "Delete one copy and save again.",
        "huggingface_hub#4725",
    ),
    "index-missing-tensor": _Rule(
        "DSP037",
        "Each tensor of the index is there",
        "Each name in `weight_map` stands in the header of its shard.",
        "The weight stays at its random start value.",
        "Restore the right shard, or write the index again.",
        "huggingface_hub#4725",
    ),
}

UNREADABLE = (*(rule.code for rule in _RULES.values() if rule.code < "DSP020"), "DSP030", "DSP032")
"""Errors after which tensors are missing from sight, so that nothing can be said of the draft as a whole."""
FAULT_CODES = {kind: rule.code for kind, rule in _RULES.items()}
"""Kind of a `Fault` to its code."""


def _register(kind: str, rule: _Rule) -> None:
    def found(checkpoint: Checkpoint) -> Iterator[Problem]:
        for fault in checkpoint.faults:
            if fault.kind == kind:
                yield Problem(fault.message, subject=fault.tensor or fault.file, measured=fault.measured, expected=fault.expected, file=fault.file, hint=_lfs_hint(fault))

    found.__doc__ = docstring(rule.checks, rule.why, rule.fix, rule.reported)
    found.__name__ = kind.replace("-", "_")
    check(rule.code, rule.title, severity=rule.severity)(found)


def _lfs_hint(fault: Fault) -> str:
    pointer = fault.kind == "header-too-large" and str(fault.measured) == f"{_LFS_LENGTH} bytes"
    return "This is a Git LFS pointer and not the weights: run `git lfs pull`, or download the file again." if pointer else ""


for _kind, _rule in _RULES.items():
    _register(_kind, _rule)


@check("DSP040", "The packaging is recognised", requires=("DSP020", "DSP021", "DSP022"))
def format_recognised(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    One of the known DSpark packagings fits the config and the tensor names.

    ## Why it matters
    Producers use the same key for different things (layer ids differ by one, block sizes by one). Guessing a packaging gives a draft that loads and accepts almost nothing.

    ## How to fix
    Restore the key that names the packaging: `speculators_model_type` "dspark" for Speculators files, `target_layer_ids` at the top level or in `dflash_config` for native ones.

    ## Reported in
    sglang#40630, speculators#753
    """
    if detect(checkpoint).format is not None:
        return
    label = checkpoint.config.get("speculators_model_type")
    found = ", ".join(f"{key}={str(checkpoint.config.get(key))[:60]}" for key in ("speculators_model_type", "architectures", "model_type") if key in checkpoint.config)
    message = (
        f"this is a Speculators file of another algorithm ({label!s:.60}), not of dspark" if label not in (None, "dspark") else "no known DSpark packaging fits this checkpoint"
    )
    looked_for = "; ".join(f"{item.name}: {(item.matches.__doc__ or '').strip()}" for item in FORMATS)
    yield Problem(message, subject="config.json", measured=found or "none of the keys that name a packaging", expected=f"one of: {looked_for}", file="config.json")
