"""Output layouts: one file each. A layout only plans."""
