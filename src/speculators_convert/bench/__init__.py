"""Paired performance runs: target alone against drafts, raw rows first, and a summary that anyone can compute again from them."""
