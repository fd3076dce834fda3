"""Servers of SGLang that `smoke` and `bench` start, ask and end."""
