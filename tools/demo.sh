#!/bin/sh
# The main job on a real draft: inspect, rewrite for SGLang and back, prove each by speculative decoding.
set -eu
cd "$(dirname "$0")/.."
draft=fixtures/trained/tiny-anchor-full-vanilla
target=fixtures/trained/tiny-target
prompts=fixtures/trained/prompts.jsonl
out=.demo
rm -rf "$out"
mkdir "$out"
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}
run spec-convert inspect "$draft" --target "$target"
run spec-convert normalize "$draft" --layout sglang --out "$out/sglang"
run spec-convert normalize "$out/sglang" --layout speculators --out "$out/speculators"
for folder in "$draft" "$out/sglang" "$out/speculators"; do
    run spec-convert smoke "$folder" --target "$target" --prompts "$prompts"
done
