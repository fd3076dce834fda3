#!/bin/sh
# The Hub tests with another release of huggingface_hub than the one installed: sh tools/test_hub.sh 1.33.0
set -eu
cd "$(dirname "$0")/.."
version="${1:-1.33.0}"
venv="${VENVS:-$HOME/.cache/spec-convert/envs}/hub-${version%%.*}"
python="${PYTHON:-python3}"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check "huggingface_hub==$version" pydantic typer rich jsonschema numpy safetensors pytest pytest-randomly hypothesis
PYTHONPATH=src exec "$venv/bin/python" -m pytest -q tests/hub
