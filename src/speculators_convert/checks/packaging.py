"""DSP4xx: what is published beside the weights."""

from __future__ import annotations

from collections.abc import Iterator

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.checks.core import check
from speculators_convert.checks.places import CONFIG, listed
from speculators_convert.findings import Problem
from speculators_convert.model import Severity

_CODE = (".py", ".pyc", ".pyd", ".so")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@check("DSP401", "No pickles lie in the folder", severity=Severity.WARNING)
def no_pickles(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The folder has no `.bin`, `.pt`, `.pth`, `.pkl`, `.pickle` or `.ckpt` file, and no file of another name that begins as a pickle does.

    ## Why it matters
    Loading a pickle runs code. Optimizer states and older exports also shadow the safetensors weights in loaders that look for them first. This tool never opens them.

    ## How to fix
    Remove the files before publishing.

    ## Reported in
    modelscan#263, modelscan#330, modelscan#338
    """
    found = [info.path for info in checkpoint.files if info.path.lower().endswith(_PICKLES) or info.path in checkpoint.pickles]
    if found:
        yield Problem(f"{len(found)} pickle files lie beside the weights", subject=found[0], measured=listed(found), expected="safetensors only", file=found[0])


@check("DSP402", "No remote code is asked for", severity=Severity.INFO)
def no_remote_code(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The config has no `auto_map`, which asks loaders to run Python code from the folder.

    ## Why it matters
    The Speculators library writes an entry without a use; with `trust_remote_code` it would run the folder's code. This tool never does, and leaves it out when it rewrites.

    ## How to fix
    Nothing to do for serving; `spec-convert normalize` leaves it out.

    ## Reported in
    specforge `normalize_dflash_export.py` (removes auto_map)
    """
    if "auto_map" in checkpoint.config:
        yield Problem("auto_map is present", subject="auto_map", measured=str(checkpoint.config["auto_map"])[:120], expected="absent", file=CONFIG, pointer="/auto_map")


@check("DSP404", "No Python code lies in the folder", severity=Severity.INFO)
def no_code(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    The folder has no `.py`, `.pyc`, `.pyd` or `.so` file.

    ## Why it matters
        With `trust_remote_code`, loaders import Python files of a model folder. A draft needs none, though the Speculators library saves its own
    `config.py`. This tool never imports them, and a rewrite does not carry them.

    ## How to fix
    Remove the files before publishing; `spec-convert normalize` leaves them out.

    ## Reported in
    huggingface/transformers documentation, section on custom models and trust_remote_code
    """
    found = [info.path for info in checkpoint.files if info.path.lower().endswith(_CODE)]
    if found:
        yield Problem(f"{len(found)} code files lie beside the weights", subject=found[0], measured=listed(found), expected="none", file=found[0])


@check("DSP403", "Header metadata names the framework", severity=Severity.INFO)
def metadata_format(checkpoint: Checkpoint) -> Iterator[Problem]:
    """
    ## What it checks
    `__metadata__` of each weight file has the key `format`.

    ## Why it matters
    Older transformers versions refuse a file without it.

    ## How to fix
    Nothing to do for current engines; `spec-convert normalize` writes {"format": "pt"}.

    ## Reported in
    safetensors#549, safetensors#823
    """
    for path, header in sorted(checkpoint.headers.items()):
        if "format" not in header.metadata:
            yield Problem("the header metadata has no format", subject=path, measured=str(dict(header.metadata))[:120], expected='{"format": "pt"}', file=path)
