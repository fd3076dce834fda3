"""The safetensors byte format: pure functions over bytes."""
