"""File formats for weights, safetensors and GGUF, and strict JSON: pure functions over bytes."""
