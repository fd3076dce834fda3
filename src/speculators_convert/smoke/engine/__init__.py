"""The reference engine: a draft, its target and the loop between them, in plain torch."""
