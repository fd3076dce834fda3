#!/bin/sh
# Core tests with the core dependencies only, one environment per interpreter named; one that is not there is skipped with a line.
set -eu
cd "$(dirname "$0")/.."
cache=${SPEC_CONVERT_CACHE:-$HOME/.cache/spec-convert}/envs
for python in "$@"; do
    if ! "$python" -c 'import sys' 2>/dev/null; then
        echo "skipped: core tests on $python (not installed)"
        continue
    fi
    env="$cache/core-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    [ -x "$env/bin/python" ] || "$python" -m venv "$env"
    "$env/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt . hypothesis pytest pytest-randomly pytest-socket psutil
    echo "core tests on $("$env/bin/python" --version), without torch"
    "$env/bin/python" -m pytest -q -m "not gpu and not sglang and not engine" --ignore=tests/smoke --ignore=tests/probe --ignore=tests/sglang --ignore=tests/ci
done
