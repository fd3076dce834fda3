"""Files beside weights and config: which ones travel with a rewrite, and why the others do not."""

from __future__ import annotations

from pathlib import PurePosixPath

from speculators_convert.checkpoint import Checkpoint
from speculators_convert.container.index import INDEX_NAME
from speculators_convert.rewrite.plan import Copy, Dropped, OutputFile
from speculators_convert.rewrite.receipt import RECEIPT_NAME
from speculators_convert.sources import FileInfo

MAX_SIDE_FILE_BYTES = 64 * 1024 * 1024
PYTHON = ".py"
CODE_LEFT_OUT = "code; a rewrite carries none"
_PLAIN = {".json", ".jsonl", ".jinja", ".md", ".txt", ".yaml", ".yml", ".model", ".tiktoken"}
_PLAIN_NAMES = ("LICENSE", "LICENCE", "NOTICE", "README", "COPYING")
_REWRITTEN = ("config.json", INDEX_NAME)
_CODE = {".py", ".pyc", ".so", ".sh", ".ipynb"}
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz", ".joblib"}
_WEIGHTS = {".safetensors", ".gguf", ".onnx", ".h5", ".msgpack", ".tflite"}
_STALE = {"hf_quant_config.json", "quantization_config.json"}


def side_files(checkpoint: Checkpoint, *, copy_code: bool = False) -> tuple[list[OutputFile], list[Dropped]]:
    """Copies of plain text and tokenizer files (with `copy_code` also Python files), and the files left out with the reason.

    Weight files in use, config and index are neither: they are written anew.
    """
    copied, dropped = list[OutputFile](), list[Dropped]()
    for info in checkpoint.files:
        if info.path in checkpoint.headers or info.path in _REWRITTEN:
            continue
        why = "a pickle under another name" if info.path in checkpoint.pickles else _why_not(info, copy_code=copy_code)
        if why:
            dropped.append(Dropped(kind="file", name=info.path, why=why))
        else:
            copied.append(OutputFile(path=info.path, size_bytes=info.size_bytes, segments=(Copy(file=info.path, start=0, stop=info.size_bytes),)))
    return copied, dropped


def is_code(path: str) -> bool:
    """Whether `copy_code` copies it: Python as text, nothing compiled."""
    return PurePosixPath(path).suffix == PYTHON


def _why_not(info: FileInfo, *, copy_code: bool) -> str:
    path = PurePosixPath(info.path)
    suffix = path.suffix.lower()
    wanted = copy_code and is_code(info.path)
    reasons = (
        (info.refused is not None, f"not readable: {info.refused}"),
        (info.path == RECEIPT_NAME, "the receipt of an earlier rewrite; this one has its own"),
        (len(path.parts) > 1, "in a subfolder"),
        (path.name.startswith("."), "a hidden file"),
        (suffix in _CODE and not wanted, CODE_LEFT_OUT),
        (suffix in _PICKLES, "may hold a pickle"),
        (suffix in _WEIGHTS, "weights that the draft does not use"),
        (path.name in _STALE, "describes weights as they were before"),
        (not wanted and suffix not in _PLAIN and path.stem not in _PLAIN_NAMES, "not a known kind of text or tokenizer file"),
        (info.size_bytes > MAX_SIDE_FILE_BYTES, f"larger than {MAX_SIDE_FILE_BYTES} bytes"),
    )
    return next((why for applies, why in reasons if applies), "")
