#!/bin/sh
# Core tests with the core dependencies only, one environment per interpreter named; one that is not there is skipped with a line.
set -eu
cd "$(dirname "$0")/.."
cache=${SPEC_CONVERT_CACHE:-$HOME/.cache/spec-convert}/envs
# The command itself when it runs, else the newest of that version that pyenv holds.
find_python() {
    for candidate in "$1" "$HOME"/.pyenv/versions/"${1#python}".*/bin/"$1"; do
        "$candidate" -c 'import sys' 2>/dev/null && found=$candidate
    done
    [ -n "$found" ]
}

for name in "$@"; do
    found=
    if ! find_python "$name"; then
        echo "skipped: core tests on $name (not installed)"
        continue
    fi
    python=$found
    env="$cache/core-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    [ -x "$env/bin/python" ] || "$python" -m venv "$env"
    "$env/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt . hypothesis pytest pytest-randomly pytest-socket psutil
    echo "core tests on $("$env/bin/python" --version), without torch"
    "$env/bin/python" -m pytest -q -m "not gpu and not sglang and not engine and not slow" --ignore=tests/smoke --ignore=tests/probe --ignore=tests/sglang --ignore=tests/ci
done
