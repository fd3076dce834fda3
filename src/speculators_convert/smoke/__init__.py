"""Runs of a draft against its target: the only package, with `probe`, that imports torch."""
