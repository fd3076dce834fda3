"""Which reading of a file drafts best: hypotheses, scored on the same tokens of one target pass per text."""
