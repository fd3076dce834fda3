"""The package ships no kernel of its own, so nothing has to be compiled ahead of time for any GPU."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "speculators_convert"
COMPILED = {".cu", ".cuh", ".ptx", ".cubin", ".fatbin", ".hip", ".so", ".pyd", ".pyx", ".cpp", ".cc", ".c"}
MAKERS = {"triton", "cuda", "cupy", "numba", "tilelang", "cutlass", "helion", "pycuda"}
"""Packages with which a Python file writes a kernel."""
BUILDERS = {"cpp_extension", "load_inline", "triton_op"}


def kernels(folder: Path) -> list[str]:
    """What in `folder` is a kernel, or makes one."""
    found = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.suffix in COMPILED]
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            modules = [*names, node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else names
            if any(module.partition(".")[0] in MAKERS for module in modules) or any(name in BUILDERS for name in _attributes(node)):
                found.append(f"{path.relative_to(folder)}:{getattr(node, 'lineno', 0)}")
    return found


def _attributes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return [alias.name.rpartition(".")[2] for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []


def test_the_package_has_none() -> None:
    assert kernels(PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.cu", "__global__ void f() {}"),
        ("a.py", "import triton.language as tl\n"),
        ("a.py", "def f():\n    from triton import jit\n"),
        ("a.py", "import torch\ntorch.utils.cpp_extension.load(name='x', sources=[])\n"),
        ("a.py", "from torch.utils.cpp_extension import load_inline\n"),
    ],
)
def test_each_kind_would_be_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert kernels(tmp_path)
