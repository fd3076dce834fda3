#!/bin/sh
# The environment of tests/sglang: a stock SGLang 0.5.23 and pytest, in a cache outside the repository. Does nothing when it is there.
# About 11 GB and 7 minutes. Usage: tools/sglang_env.sh [path]; prints the path of its Python.
set -eu
version=0.5.23
folder=${1:-${SPEC_CONVERT_CACHE:-$HOME/.cache/spec-convert}/envs/sglang-$version}
python=$folder/bin/python
if ! { [ -x "$python" ] && [ "$("$python" -c 'from importlib.metadata import version; import pytest; print(version("sglang"))' 2>/dev/null)" = "$version" ]; }; then
  maker=${PYTHON:-$(command -v python3.11 || command -v python3)}
  [ -x "$python" ] || "$maker" -m venv "$folder"
  "$python" -m pip install --disable-pip-version-check -q "sglang==$version" "pytest>=8.3" "setuptools>=77" >&2
fi
echo "$python"
