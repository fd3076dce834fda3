#!/usr/bin/env bash
# Build the Python environment in which one release of the speculators package
# writes fixtures:   tools/fixtures_env.sh 0.9.0 | 0.8.1 | 0.7.0.2 | 0.7.0.2-tf4
#
# Why a script: the package asks for torchvision without naming its version, and a
# plain install lets that replace a CPU build of torch by a CUDA build of several
# gigabytes.  So torch comes first and a constraints file holds it in place.
# "0.7.0.2-tf4" is release 0.7.0.2 over transformers 4: that pair writes an older
# config.json (rope_theta at the top of the decoder config).
set -euo pipefail

variant=${1:?usage: fixtures_env.sh 0.9.0|0.8.1|0.7.0.2|0.7.0.2-tf4}
root=${SPEC_CONVERT_ENVS:-$HOME/.cache/spec-convert/envs}
env=$root/speculators-$variant

case $variant in
  0.9.0)       transformers=5.19.0 ;;
  0.8.1)       transformers=5.14.1 ;;
  0.7.0.2)     transformers=5.14.1 ;;
  0.7.0.2-tf4) transformers=4.57.6 ;;
  *) echo "unknown variant: $variant" >&2; exit 2 ;;
esac
version=${variant%-tf4}
extras=()
if [[ $version != 0.7.0.2 ]]; then extras+=("hs-connectors"); fi

mkdir -p "$root"
[[ -x $env/bin/python ]] || python3.11 -m venv "$env"
pins=$env/constraints.txt
cat >"$pins" <<PINS
torch==2.13.0
transformers==$transformers
numpy==2.4.6
safetensors==0.8.0
datasets==5.0.1
PINS
"$env/bin/pip" install -q torch==2.13.0
"$env/bin/pip" install -q -c "$pins" "speculators==$version" openai datasets "${extras[@]}"
# Their compiled operators belong to a CUDA build; beside a CPU torch their mere
# presence breaks the import of transformers, and no draft code needs them.
"$env/bin/pip" uninstall -q -y torchvision torchaudio
"$env/bin/pip" freeze | grep -E '^(torch|transformers|speculators|safetensors|numpy|datasets|openai|hs-connectors)=='
